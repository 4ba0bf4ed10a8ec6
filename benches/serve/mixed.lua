-- Load for `POST /predict` with texts of very different lengths, made of the words of a file. Nine texts in ten have 1 to 60 words,
-- one in a thousand has 10,000 to 100,000 words, and the rest have 60 to 1,000. The seed is fixed: each run sends the same texts.
--
-- usage: wrk -t1 -c64 -d60s --timeout 60s -s benches/serve/mixed.lua http://127.0.0.1:8080 -- TEXTS N

dofile(debug.getinfo(1, "S").source:match("^@(.*)mixed.lua$") .. "predict.lua")

function texts(lines, count)
  math.randomseed(1)
  local words, all = {}, {}
  for _, line in ipairs(lines) do
    for word in line:gmatch("%S+") do table.insert(words, word) end
  end
  for at = 1, count do
    local least, most = 1, 60
    if at % 1000 == 505 then
      least, most = 10000, 100000
    elseif at % 10 == 5 then
      least, most = 60, 1000
    end
    local text = {}
    for word = 1, math.random(least, most) do text[word] = words[math.random(#words)] end
    all[at] = table.concat(text, " ")
  end
  return all
end
