// A service on Go's net/http, pgx 4 and zerolog.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
	"github.com/rs/zerolog"
)

type Pet struct {
	Id         int64   `json:"id"`
	Name       string  `json:"name"`
	CategoryId int64   `json:"categoryId"`
	Status     *string `json:"status,omitempty"`
}

type NewPet struct {
	Name       *string `json:"name"`
	CategoryId *int64  `json:"categoryId"`
	Status     *string `json:"status"`
}

type Window struct {
	count  int64
	endsAt time.Time
}

// The counts of a key.
type State struct {
	sync.Mutex
	minute, day Window
}

type Key struct {
	id                string
	perMinute, perDay int64
	state             *State
}

type Page struct {
	pets []Pet
	link string
}

type Entry struct {
	value any
	until time.Time
}

// Buffers log lines. They are written when the buffer is full, and every 50 milliseconds.
type LogWriter struct {
	sync.Mutex
	buffer *bufio.Writer
}

func (w *LogWriter) Write(line []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.buffer.Write(line)
}

var (
	pool   *pgxpool.Pool
	cache  sync.Map // from a hash, an id, or a cursor and limit, to an Entry
	states sync.Map // from a key's id to a *State
	output = &LogWriter{buffer: bufio.NewWriterSize(os.Stdout, 1<<16)}
	logger = zerolog.New(output).With().Timestamp().Logger()
	// How long pets and full pages are cached.
	petLifetime, _ = time.ParseDuration(os.Getenv("PET_CACHE_SECONDS") + "s")
)

var statuses = map[string]bool{"available": true, "pending": true, "sold": true}

// Returns a cached value, or reads it, and caches it if it is final.
func cached[Value any](name any, lifetime time.Duration, read func(*Value) (isFinal bool, err error)) (Value, error) {
	now := time.Now()
	if entry, ok := cache.Load(name); ok && entry.(Entry).until.After(now) {
		return entry.(Entry).value.(Value), nil
	}
	var value Value
	isFinal, err := read(&value)
	if lifetime > 0 && isFinal && err == nil {
		cache.Store(name, Entry{value, now.Add(lifetime)})
	}
	return value, err
}

// Finds the key of an Authorization header.
func authenticate(ctx context.Context, authorization string) (Key, error) {
	if !strings.HasPrefix(authorization, "Bearer ") {
		return Key{}, pgx.ErrNoRows
	}
	hash := sha256.Sum256([]byte(authorization[len("Bearer "):]))
	return cached(hash, time.Second, func(key *Key) (bool, error) {
		err := pool.QueryRow(ctx, `SELECT k.id, k.per_minute, k.per_day
			FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
			WHERE s.hash = $1 AND k.revoked_at IS NULL
				AND (k.expires_at IS NULL OR k.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())`,
			hash[:]).Scan(&key.id, &key.perMinute, &key.perDay)
		if err == nil {
			state, _ := states.LoadOrStore(key.id, &State{})
			key.state = state.(*State)
		}
		return true, err
	})
}

func open(window *Window, now time.Time, length time.Duration) {
	if !window.endsAt.After(now) {
		*window = Window{0, now.Add(length)}
	}
}

// Charges a request to both windows of a key, or to neither, and sets the headers.
func charge(key Key, header http.Header) bool {
	state, now := key.state, time.Now()
	state.Lock()
	defer state.Unlock()
	open(&state.minute, now, time.Minute)
	open(&state.day, now, 24*time.Hour)
	allowed := state.minute.count < key.perMinute && state.day.count < key.perDay
	if allowed {
		state.minute.count++
		state.day.count++
	}
	limit, window := key.perMinute, state.minute
	if key.perDay-state.day.count < key.perMinute-state.minute.count {
		limit, window = key.perDay, state.day
	}
	header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(limit, 10)}
	header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(limit-window.count, 10)}
	header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(window.endsAt.Unix()+1, 10)}
	if !allowed {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(window.endsAt.Sub(now).Seconds()))))
	}
	return allowed
}

func respond(w http.ResponseWriter, status int, body any) int {
	text, _ := json.Marshal(body)
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(status)
	w.Write(text)
	return status
}

func fail(w http.ResponseWriter, status int, code string, message string) int {
	return respond(w, status, map[string]any{"code": code, "message": message, "status": status})
}

func internal(w http.ResponseWriter) int {
	return fail(w, 500, "internal_error", "The request failed.")
}

func list(w http.ResponseWriter, r *http.Request) int {
	limit, after, query := 20, int64(0), r.URL.Query()
	var err error
	if text := query.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
	}
	if cursor := query.Get("cursor"); cursor != "" && err == nil {
		text, _ := base64.RawURLEncoding.DecodeString(cursor)
		after, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil || limit < 1 || limit > 100 {
		return fail(w, 400, "invalid_request", "The request is invalid.")
	}
	page, err := cached([2]int64{after, int64(limit)}, petLifetime, func(page *Page) (bool, error) {
		rows, err := pool.Query(r.Context(),
			"SELECT id, name, category_id, status FROM pets WHERE id > $1 ORDER BY id LIMIT $2", after, limit+1)
		if err != nil {
			return false, err
		}
		defer rows.Close()
		page.pets = make([]Pet, 0, limit+1)
		for rows.Next() {
			pet := Pet{}
			if err := rows.Scan(&pet.Id, &pet.Name, &pet.CategoryId, &pet.Status); err != nil {
				return false, err
			}
			page.pets = append(page.pets, pet)
		}
		if len(page.pets) > limit {
			page.pets = page.pets[:limit]
			next := base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, page.pets[limit-1].Id, 10))
			page.link = fmt.Sprintf(`</v1/pets?limit=%d&cursor=%s>; rel="next"`, limit, next)
		}
		return page.link != "", rows.Err()
	})
	if err != nil {
		return internal(w)
	}
	if page.link != "" {
		w.Header()["Link"] = []string{page.link}
	}
	return respond(w, 200, page.pets)
}

func get(w http.ResponseWriter, r *http.Request) int {
	id, err := strconv.ParseInt(r.URL.Path[len("/v1/pets/"):], 10, 64)
	if err != nil {
		return fail(w, 400, "invalid_request", "The request is invalid.")
	}
	pet, err := cached(id, petLifetime, func(pet *Pet) (bool, error) {
		return true, pool.QueryRow(r.Context(), "SELECT id, name, category_id, status FROM pets WHERE id = $1", id).
			Scan(&pet.Id, &pet.Name, &pet.CategoryId, &pet.Status)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return fail(w, 404, "not_found", "There is no such pet.")
	} else if err != nil {
		return internal(w)
	}
	return respond(w, 200, pet)
}

const insert = "INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id"

func create(w http.ResponseWriter, r *http.Request, key Key) int {
	body, sent := NewPet{}, http.MaxBytesReader(w, r.Body, 1<<16)
	text, err := io.ReadAll(sent)
	if err != nil || json.Unmarshal(text, &body) != nil || body.Name == nil || body.CategoryId == nil ||
		body.Status != nil && !statuses[*body.Status] {
		return fail(w, 400, "invalid_request", "The request is invalid.")
	}
	pet := Pet{Name: *body.Name, CategoryId: *body.CategoryId, Status: body.Status}
	if idempotencyKey := r.Header.Get("Idempotency-Key"); idempotencyKey == "" {
		err = pool.QueryRow(r.Context(), insert, pet.Name, pet.CategoryId, pet.Status).Scan(&pet.Id)
	} else {
		canonical, _ := json.Marshal(pet)
		request := sha256.Sum256(canonical)
		// A key that is in use fails the statement, which then stores nothing.
		err = pool.QueryRow(r.Context(), "WITH pet AS ("+insert+`), claim AS (
				INSERT INTO idempotency_keys (owner, key, request, pet_id, expires_at)
				SELECT $4, $5, $6, id, now() + interval '24 hours' FROM pet
			) SELECT id FROM pet`, pet.Name, pet.CategoryId, pet.Status, key.id, idempotencyKey, request[:]).Scan(&pet.Id)
		failure := &pgconn.PgError{}
		if errors.As(err, &failure) && failure.ConstraintName == "idempotency_keys_pkey" {
			var used []byte
			err = pool.QueryRow(r.Context(), "SELECT pet_id, request FROM idempotency_keys WHERE owner = $1 AND key = $2",
				key.id, idempotencyKey).Scan(&pet.Id, &used)
			if err == nil && string(used) != string(request[:]) {
				return fail(w, 422, "idempotency_key_reused", "The idempotency key was used for another pet.")
			}
			w.Header()["Idempotent-Replayed"] = []string{"true"}
		}
	}
	if err != nil {
		return internal(w)
	}
	w.Header()["Location"] = []string{"/v1/pets/" + strconv.FormatInt(pet.Id, 10)}
	return respond(w, 201, pet)
}

func newRequestId() string {
	id := [16]byte{}
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Authenticates, charges, routes and logs a request.
func serve(w http.ResponseWriter, r *http.Request) {
	startedAt, requestId, route, status := time.Now(), newRequestId(), "none", 404
	w.Header()["X-Request-Id"] = []string{requestId}
	key, err := authenticate(r.Context(), r.Header.Get("Authorization"))
	if errors.Is(err, pgx.ErrNoRows) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		status = fail(w, 401, "invalid_api_key", "The API key is unknown.")
	} else if err != nil {
		status = internal(w)
	} else if !charge(key, w.Header()) {
		status = fail(w, 429, "rate_limit_exceeded", "The rate limit is exceeded.")
	} else if r.URL.Path == "/v1/pets" && r.Method == "GET" {
		route, status = "/v1/pets", list(w, r)
	} else if r.URL.Path == "/v1/pets" && r.Method == "POST" {
		route, status = "/v1/pets", create(w, r, key)
	} else if strings.HasPrefix(r.URL.Path, "/v1/pets/") && r.Method == "GET" {
		route, status = "/v1/pets/:petId", get(w, r)
	} else {
		fail(w, 404, "not_found", "There is no such path.")
	}
	logger.Info().Str("method", r.Method).Str("route", route).Int("status", status).
		Float64("durationMs", float64(time.Since(startedAt))/1e6).
		Str("keyId", key.id).Str("requestId", requestId).Msg("request")
}

func main() {
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err == nil {
		config.MaxConns = 10
		pool, err = pgxpool.ConnectConfig(context.Background(), config)
	}
	if err != nil {
		panic(err)
	}
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			output.Lock()
			output.buffer.Flush()
			output.Unlock()
		}
	}()
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), http.HandlerFunc(serve)))
}
