-- Load for `POST /predict`: requests of N texts each, from a file of one text per line. At the end, a line of JSON.
--
-- usage: wrk -t1 -c256 -d20s --timeout 30s -s benches/serve/predict.lua http://127.0.0.1:8080 -- TEXTS N

local threads = {}
BODIES = 1000 -- distinct requests

-- The texts of all requests, in their order.
function texts(lines, count)
  local all = {}
  for at = 1, count do all[at] = lines[(at - 1) % #lines + 1] end
  return all
end

local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

function setup(thread)
  table.insert(threads, thread)
  thread:set("first", #threads * 101) -- threads begin at different requests
end

function init(args)
  local lines, size = {}, tonumber(args[2])
  for line in io.lines(args[1]) do table.insert(lines, line) end
  local all = texts(lines, BODIES * size)
  requests, statuses, per_request = {}, {}, size
  for request = 1, BODIES do
    local body = {}
    for at = 1, size do body[at] = quoted(all[(request - 1) * size + at]) end
    body = '{"texts": [' .. table.concat(body, ", ") .. "]}"
    requests[request] = wrk.format("POST", "/predict", {["Content-Type"] = "application/json"}, body)
  end
end

function request()
  first = first % BODIES + 1
  return requests[first]
end

function response(status)
  local key = tostring(status)
  statuses[key] = (statuses[key] or 0) + 1
end

function done(summary, latency)
  local all, listed, size = {}, {}, threads[1]:get("per_request")
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("statuses")) do all[status] = (all[status] or 0) + count end
  end
  for status, count in pairs(all) do table.insert(listed, ('"%s": %d'):format(status, count)) end
  table.sort(listed)
  local seconds, errors = summary.duration / 1e6, summary.errors
  local line = '{"requests": %d, "texts_per_request": %d, "answers_per_s": %.1f, "p50_ms": %.3f, "p99_ms": %.3f, '
    .. '"max_ms": %.3f, "statuses": {%s}, "timeouts": %d, "broken_connections": %d}'
  print(line:format(summary.requests, size, (all["200"] or 0) * size / seconds, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, table.concat(listed, ", "), errors.timeout,
    errors.connect + errors.read + errors.write))
end
