"""The Lua scripts of the Redis engine. A script runs alone in the server, so readers see all of its writes or none.

The hash ``{stream}:tweetwire`` keeps, beside the stream:

- ``id``: the identity of the stream. It is made at the first opening, and again when the stream was deleted.
- ``<broker>/<topic>``: our position, as ``<offset> <entry id> <entries added> <stream's identity> <log's id>``. In positions of
  earlier releases, the id of the topic's log is missing.

A position is void if the stream is missing, or if its identity is another one. It is also void if the newest id of the stream,
or its number of added entries, is less than that of the position. A Redis older than 7.0 does not count the added entries. Then
-1 stands in their place.

A script that fails in the middle keeps what it wrote. So everything that may fail is checked before the first write.
"""

from typing import Final

__all__ = ["APPEND", "FORGET", "OPEN"]

_COMMON: Final = """
local function look(stream)
  if redis.call('EXISTS', stream) == 0 then return nil end
  local info, found = redis.call('XINFO', 'STREAM', stream), {last = '0-0', added = -1}
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then found.last = info[at + 1] end
    if info[at] == 'entries-added' then found.added = info[at + 1] end
  end
  return found
end

local function parts(id)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(number)
end

local function is_before(id, other)
  local ms, number = parts(id)
  local other_ms, other_number = parts(other)
  return ms < other_ms or (ms == other_ms and number < other_number)
end

local function is_void(kept, found, centre)
  if kept == '' then return false end
  local _, id, added, of = string.match(kept, '^(%d+) (%d+%-%d+) (%-?%d+) (%S+) ?%S*$')
  if not id or not found or of ~= centre then return true end
  return is_before(found.last, id) or (found.added >= 0 and found.added < tonumber(added))
end

local stream, positions, field = KEYS[1], KEYS[2], ARGV[1]
local kept = redis.call('HGET', positions, field) or ''
local centre = redis.call('HGET', positions, 'id') or ''
"""

OPEN: Final = (
    _COMMON
    + """
local found = look(stream)
if not found and kept == '' and ARGV[3] == 'no' then return {'absent'} end
if centre == '' then centre = ARGV[2] end
redis.call('HSET', positions, 'id', centre)
local void = 'no'
if is_void(kept, found, centre) then void = 'yes' end
return {'found', kept, centre, void}
"""
)
"""Return the position, the stream's identity and whether the position is void. ARGV: field, an identity, whether to create.

The identity is written even if it is already there, so that WAIT has a write of this connection to wait for.
"""

FORGET: Final = (
    _COMMON
    + """
local void = is_void(kept, look(stream), centre)
local of = string.match(kept, '^%S+ %S+ %S+ (%S+)')
redis.call('HDEL', positions, field)
if centre == '' or (void and of == centre) then
  centre = ARGV[2]
  redis.call('HSET', positions, 'id', centre)
end
return centre
"""
)
"""Delete the position, and give a deleted stream a new identity if no other route has done so yet."""

APPEND: Final = (
    _COMMON
    + """
if kept ~= ARGV[2] then return {'moved', kept} end
local found = look(stream)
if is_void(kept, found, centre) or (kept == '' and centre ~= ARGV[3]) then return {'lost'} end
if not found and ARGV[6] == 'no' then return {'absent'} end
local added = found and found.added or 0
local ids, names, columns, sparse = unpack(cmsgpack.unpack(ARGV[4]))
if found and not is_before(found.last, ids[1]) then
  local ms, number = parts(found.last)
  if ms > 9e15 or number > 9e15 then return {'ids', found.last} end
  for at, given in ipairs(ids) do
    local entry_ms, entry_number = parts(given)
    if entry_ms > ms then ms, number = entry_ms, entry_number else number = math.max(number + 1, entry_number) end
    ids[at] = string.format('%.0f-%.0f', ms, number)
  end
end

local trim, id = ARGV[5], ids[#ids]
local words, places, changing = {}, {}, {}
for at, name in ipairs(names) do
  words[2 * at - 1], words[2 * at] = name, columns[at]
  if type(columns[at]) == 'table' then
    places[#places + 1], changing[#changing + 1] = 2 * at, columns[at]
  end
end
for at, entry in ipairs(ids) do
  if sparse then
    words = {}
    for column, name in ipairs(names) do
      local value = columns[column][at]
      if value then
        words[#words + 1] = name
        words[#words + 1] = value
      end
    end
  else
    for column, place in ipairs(places) do words[place] = changing[column][at] end
  end
  if trim ~= '0' and at == #ids then
    redis.call('XADD', stream, 'MAXLEN', '~', trim, entry, unpack(words))
  else
    redis.call('XADD', stream, entry, unpack(words))
  end
end
if added >= 0 then added = added + #ids end
kept = string.format('%s %s %.0f %s', ARGV[7], id, added, centre)
if ARGV[8] ~= '' then kept = kept .. ' ' .. ARGV[8] end
redis.call('HSET', positions, field, kept)
return {'stored', kept}
"""
)
"""Append a batch if the position is the expected one.

ARGV: field, the expected position, the stream's identity, the batch in MessagePack, the entries to keep, whether to create,
the new offset, the id of the log. See `bridge.engines.redis_batch` for the batch. If another program has written or
a clock was set back, its first id is not after the newest id of the stream. Then the ids are the next possible ones.
"""
