"""The Lua scripts of the Redis engine. A script runs alone in the server, so readers see all of its writes or none.

The hash ``{stream}:tweetwire`` keeps, beside the stream:

- ``id``: the identity of the stream. It is made at the first opening, and again when the stream was deleted.
- ``<broker>/<topic>``: our position, as ``<offset> <entry id> <entries added> <identity of the stream>``.

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
  local _, id, added, of = string.match(kept, '^(%d+) (%d+%-%d+) (%-?%d+) (%S+)$')
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
local of = string.match(kept, '(%S+)$')
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
local ms, number, added = 0, 0, 0
if found then
  ms, number = parts(found.last)
  added = found.added
end
if ms > 9e15 or number > 9e15 then return {'ids', found.last} end
local batch, trim, id = cmsgpack.unpack(ARGV[4]), ARGV[5], ''
for at, entry in ipairs(batch) do
  local entry_ms, entry_number = entry[1], entry[2]
  if entry_ms < ms then entry_ms = ms end
  if entry_ms == ms and entry_number <= number then entry_number = number + 1 end
  ms, number = entry_ms, entry_number
  id = string.format('%.0f-%.0f', ms, number)
  if trim ~= '0' and at == #batch then
    redis.call('XADD', stream, 'MAXLEN', '~', trim, id, unpack(entry, 3))
  else
    redis.call('XADD', stream, id, unpack(entry, 3))
  end
end
if added >= 0 then added = added + #batch end
kept = string.format('%s %s %.0f %s', ARGV[7], id, added, centre)
redis.call('HSET', positions, field, kept)
return {'stored', kept}
"""
)
"""Append a batch if the position is the expected one.

ARGV: field, the expected position, the stream's identity, the batch in MessagePack, the entries to keep, whether to create,
the new offset. An entry of the batch is a list of time, offset, and names and values in turn. Its id is ``<time>-<offset>``.
Where that is not after the newest id, because another program has written or a clock was set back, it is the next possible id.
"""
