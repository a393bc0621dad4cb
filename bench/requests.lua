-- For wrk: sends the requests of a file in turn, each a line of method, path and, for some, body, each with the next of the
-- keys of another file; prints the outcome as JSON.
-- wrk -s requests.lua http://… -- REQUESTS KEYS

local requests, nth = {}, 0

-- All is made beforehand: what is made on the way stops Lua for some 40 milliseconds now and then, which would be the 99th
-- percentile of whoever is fast.
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
    wrk.headers["Authorization"] = keys[i % #keys + 1]
    requests[i] = wrk.format(method, path, nil, body ~= "" and body or nil)
  end
  -- Loads that start in the same second begin elsewhere each.
  math.randomseed(os.time() + tonumber(tostring(requests):match("0x(%x+)"), 16) % 2 ^ 31)
  nth = math.random(#requests)
end

function request()
  nth = nth + 1
  return requests[nth % #requests + 1]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requestsPerSecond":%f,"p50":%f,"p99":%f,"requests":%d,"failed":%d}\n',
    summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1000,
    latency:percentile(99) / 1000,
    summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
