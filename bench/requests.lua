-- For wrk: sends the requests of a file in turn, each a line of method, path and, for some, body, each with the next of the
-- keys of another file; prints the outcome as JSON.
-- wrk -s requests.lua http://… -- REQUESTS KEYS

local requests, keys, nth = {}, {}, 0

local function format(request, key)
  local method, path, body = unpack(requests[request])
  wrk.headers["Authorization"] = keys[key]
  return wrk.format(method, path, nil, body)
end

function init(args)
  for line in io.lines(args[1]) do
    local method, path, body = line:match("^(%u+) (%S+) ?(.*)$")
    requests[#requests + 1] = { method, path, body ~= "" and body or nil }
  end
  for key in io.lines(args[2]) do
    keys[#keys + 1] = "Bearer " .. key
  end
  wrk.headers["Content-Type"] = "application/json"
  -- With one key all is made beforehand: what is made on the way stops Lua for some 40 milliseconds now and then, which would
  -- be the 99th percentile of whoever is fast.
  if #keys == 1 then
    for i in ipairs(requests) do
      requests[i] = format(i, 1)
    end
  end
  nth = wrk.thread and tonumber(tostring(wrk.thread):match("0x(%x+)"), 16) % #requests or 0
end

function request()
  nth = nth + 1
  local i = nth % #requests + 1
  return #keys == 1 and requests[i] or format(i, nth % #keys + 1)
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
