-- A script for wrk. It sends the requests of a file in turn, each with the next key of another file, and prints the
-- outcome as JSON. Each line of the first file has a method, a path and, optionally, a body. With "Idempotency-Key"
-- before the body, each request has a new idempotency key.
-- wrk -s requests.lua http://… -- REQUESTS KEYS

local requests, index = {}, 0

-- The place of the idempotency key in a request.
local placeholder = "IDEMPOTENCY-KEY-OF-36-CHARACTERS----"

local startedAt, keysMade = os.time() * 1000, 0

-- Returns a UUID of version 7, like PetstoreClient: milliseconds, then random bits. Ten keys share a millisecond, because
-- Lua's clock has only seconds.
local function newKey()
  keysMade = keysMade + 1
  local time = startedAt + math.floor(keysMade / 10)
  local first, second, third = math.random(0, 0xfff), math.random(0x8000, 0xbfff), math.random(0, 2 ^ 31 - 1)
  return string.format("%08x-%04x-7%03x-%04x-%012x", math.floor(time / 2 ^ 16), time % 2 ^ 16, first, second, third)
end

-- All requests are formatted before the load starts. Garbage of requests that are formatted during it would stop Lua for
-- some 40 milliseconds at times, which would be the 99th percentile of a fast server.
function init(args)
  local keys, lines = {}, {}
  for key in io.lines(args[2]) do
    keys[#keys + 1] = "Bearer " .. key
  end
  for line in io.lines(args[1]) do
    lines[#lines + 1] = line
  end
  wrk.headers["Content-Type"] = "application/json"
  for i = 1, math.max(#lines, #keys) do
    local method, path, body = lines[i % #lines + 1]:match("^(%u+) (%S+) ?(.*)$")
    local idempotentBody = body:match("^Idempotency%-Key (.*)$")
    wrk.headers["Authorization"] = keys[i % #keys + 1]
    wrk.headers["Idempotency-Key"] = idempotentBody and placeholder
    body = idempotentBody or body
    local text = wrk.format(method, path, nil, body ~= "" and body or nil)
    local first, last = text:find(placeholder, 1, true)
    -- A request with an idempotency key is the two parts around the key.
    requests[i] = first and { text:sub(1, first - 1), text:sub(last + 1) } or text
  end
  -- Loads that start in the same second start at different requests.
  math.randomseed(os.time() + tonumber(tostring(requests):match("0x(%x+)"), 16) % 2 ^ 31)
  index = math.random(#requests)
end

function request()
  index = index + 1
  local formatted = requests[index % #requests + 1]
  return type(formatted) == "table" and formatted[1] .. newKey() .. formatted[2] or formatted
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requestsPerSecond":%f,"p99":%f,"requests":%d,"failed":%d}\n',
    summary.requests / summary.duration * 1e6,
    latency:percentile(99) / 1000,
    summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
