-- Polyrail for Wireshark and tshark: packets, frames, handshakes, beacons and express frames of wire version 1.
--
--   tshark -X lua_script:tools/wireshark/polyrail.lua -r node.pcap
--   Wireshark: copy the file to its folder of personal Lua plugins (Help, About Wireshark, Folders)
--
-- Sections (§) are those of docs/protocol.md. Where a packet breaks them there is an expert info "polyrail.malformed",
-- with the same word for the fault as the node's counters have.

local polyrail = Proto("polyrail", "Polyrail")
local express = Proto("polyrail_express", "Polyrail express frame")

local HEADER_BYTES = 24
local SEAL_BYTES = 16
local VERSION = 1
local NUMBER_MAX = 2 ^ 48 - 1
local ACK_RANGES_MAX = 32
local BINDINGS_MAX = 28
local BEARERS_MAX = 16

-- ----- names of values ------------------------------------------------------------------------------------------------

local TYPES = { [0] = "DATA", "INIT", "RESP", "COOKIE", "BEACON", "VERSIONS", "RESET" }
local CLASSES = { [0] = "control", "urgent", "normal", "bulk" }
local BEARER_STATES = { [0] = "down", "free", "busy", "leaving" }
local REFUSE_REASONS = { "no room", "no such port", "too large" }
local PROBE_KINDS = { [0] = "liveness", "indirect", "mtu", "state", "join" }
local LINK_STATUS = { [0] = "active", "standby", "drain", "down" }
local CLOSE_REASONS = { [0] = "leaving", "replaced", "protocol violation" }
local OPERATIONS = { "publish", "withdraw" }
local SCOPES = { [2] = "cluster", [3] = "node" }
local RMA_KINDS = { [0] = "put", "get", "fetch-and-add", "compare-and-swap" }
local RMA_STATUS = { [0] = "done", "go on", "no such region", "not allowed", "out of bounds" }
local MEMBER_STATUS = { [0] = "alive", "suspect", "down" }
local ACCEPT_REASONS = { [0] = "none", "backlog full", "nobody listens", "not allowed" }
local REJECT_REASONS = { [0] = "none of them yet", "port closed", "owner died", "rejected by the owner" }
local DIGEST_SAYS = { [0] = "state", "anew", "again" }
local GROUP_KINDS = { [0] = "join", "leave", "credit" }
local PARAMETERS = { [0] = "padding", "NAME", "BEARER", "COOKIE", [0x80] = "KEYS" }
local CONTENTS = { [0] = "packet", "question", "answer" }

-- ----- fields ---------------------------------------------------------------------------------------------------------

local F = {}
local fields = {}

local function field(kind, name, text, ...)
    local made = ProtoField[kind]("polyrail." .. name, text, ...)
    F[name] = made
    fields[#fields + 1] = made
end

-- Packet header, §2.1.
field("uint8", "version", "Version", base.DEC, nil, 0xf0)
field("uint8", "type", "Type", base.DEC, TYPES, 0x0f)
field("uint8", "flags", "Flags", base.HEX)
field("bool", "flags.key_phase", "Key phase", 8, nil, 0x01)
field("bool", "flags.sealed", "Sealed", 8, nil, 0x02)
field("bool", "flags.full_check", "Check covers payloads", 8, nil, 0x04)
field("bool", "flags.ack_eliciting", "To be acknowledged", 8, nil, 0x08)
field("bool", "flags.ack_now", "... at once", 8, nil, 0x10)
field("bool", "flags.train_last", "Last of a train", 8, nil, 0x20)
field("bool", "flags.ack_soon", "To be acknowledged soon", 8, nil, 0x40)
field("uint16", "link", "Link")
field("uint32", "session", "Session of the receiver", base.DEC)
field("uint64", "number", "Number", base.DEC)
field("uint32", "stamp", "Stamp (256 ns)", base.HEX)
field("uint32", "check", "Check", base.HEX)
field("bytes", "sealed", "Sealed body")
field("bytes", "tag_of_seal", "Tag")
-- Frame header, §2.2.
field("uint8", "frame", "Frame", base.HEX)
field("uint8", "frame.flags", "Flags", base.HEX)
field("uint16", "frame.len", "Length")
field("bytes", "frame.content", "Content")
field("bytes", "payload", "Payload")
field("uint32", "payload.len", "Payload bytes")
field("bytes", "pad", "Padding")
-- Messages, §4.1 to §4.3, §4.8.
field("uint8", "class", "Class", base.DEC, CLASSES, 0x03)
field("bool", "unordered", "Unordered", 8, nil, 0x04)
field("bool", "has_tag", "Tag present", 8, nil, 0x08)
field("bool", "notify", "Notify when consumed", 8, nil, 0x10)
field("bool", "has_service", "Service present", 8, nil, 0x20)
field("bool", "has_crc", "Message checksum present", 8, nil, 0x80)
field("uint32", "from", "From port")
field("uint32", "to", "To port")
field("uint32", "seq", "Message number (low half)")
field("uint32", "service.kind", "Service kind")
field("uint32", "service.instance", "Service instance")
field("uint64", "tag", "Tag", base.HEX)
field("uint32", "crc", "Message checksum", base.HEX)
field("uint64", "total", "Bytes of the message", base.DEC)
field("uint64", "offset", "Offset", base.DEC)
field("uint32", "transfer", "Transfer")
field("uint32", "token", "Token")
field("uint64", "granted", "Granted", base.DEC)
field("uint64", "done", "Done", base.DEC)
-- ACK, §4.4.
field("uint16", "ack.link", "Link acknowledged")
field("uint8", "ack.pairs", "Pairs")
field("uint8", "ack.rx_batch", "Bytes by receive call (log2)")
field("uint64", "ack.largest", "Largest", base.DEC)
field("uint32", "ack.stamp_echo", "Stamp echo", base.HEX)
field("uint32", "ack.delay", "Delay (256 ns)")
field("uint64", "ack.rx_bytes", "Bytes received in all", base.DEC)
field("uint32", "ack.rx_clock", "Receiver's clock", base.HEX)
field("uint32", "ack.ce_count", "Congestion marks")
field("uint32", "ack.first", "Below largest in the first range")
field("uint32", "ack.queueing", "Queueing (256 ns)")
field("uint16", "ack.gap", "Missing")
field("uint16", "ack.received", "Received")
field("string", "ack.range", "Acknowledged")
-- Bearers, credit, refusals, §4.5 to §4.7.
field("uint8", "bearer", "Bearer")
field("uint8", "bearer.tx_state", "Sending", base.DEC, BEARER_STATES)
field("uint8", "bearer.rx_state", "Receiving", base.DEC, BEARER_STATES)
field("uint32", "bearer.tx_backlog", "Bytes queued to send")
field("uint32", "bearer.rx_backlog", "Bytes not handled yet")
field("uint32", "bearer.rx_window", "Window towards it")
field("uint16", "bearer.senders", "Senders")
field("uint32", "bearer.rx_rate", "Share of the rate (KB/s)")
field("uint32", "bearer.seq", "Number of the report")
field("uint32", "port", "Port")
field("uint32", "credit.messages", "Messages in all (low half)")
field("uint64", "credit.bytes", "Bytes in all", base.DEC)
field("uint32", "control", "Control number")
field("uint16", "refuse.reason", "Reason", base.DEC, REFUSE_REASONS)
field("uint32", "refuse.retry_after_us", "Try again after (us)")
-- Bindings, §4.10.
field("uint64", "bindings.origin", "Origin", base.HEX)
field("uint64", "bindings.incarnation", "Incarnation", base.DEC)
field("uint64", "bindings.log_seq", "Log number of the first", base.DEC)
field("uint32", "binding.kind", "Service kind")
field("uint32", "binding.lower", "First instance")
field("uint32", "binding.upper", "Last instance")
field("uint32", "binding.port", "Port")
field("uint64", "binding.key", "Key", base.HEX)
field("uint8", "binding.scope", "Scope", base.DEC, SCOPES)
field("uint8", "binding.operation", "Operation", base.DEC, OPERATIONS)
field("uint8", "binding.weight", "Weight")
field("bool", "binding.exclusive", "Exclusive", 8, nil, 0x01)
-- Supervision, §4.11 to §4.14.
field("uint8", "probe.kind", "Kind", base.DEC, PROBE_KINDS, 0x0f)
field("bool", "probe.carrier", "Carrier", 8, nil, 0x80)
field("uint16", "probe.about", "About link")
field("uint16", "probe.size", "Size")
field("uint64", "probe.id", "Id", base.HEX)
field("uint64", "probe.target", "Target", base.HEX)
field("uint64", "probe.last_rx", "Highest received", base.DEC)
field("uint64", "probe.next_tx", "Next to be sent", base.DEC)
field("uint32", "probe.last_rx_age", "Age of the highest (256 ns)")
field("uint32", "probe.stall_us", "Stalls (us)")
field("uint16", "link_set.link", "Link")
field("uint8", "link_set.status", "Status", base.DEC, LINK_STATUS)
field("uint32", "link_set.number", "Number of the next packet (low half)")
field("uint8", "bearer_set.bearer", "Bearer")
field("uint8", "bearer_set.there", "It is", base.DEC, { [0] = "gone", "there" })
field("uint8", "bearer_set.address_bytes", "Bytes of its address")
field("uint16", "close.reason", "Reason", base.DEC, CLOSE_REASONS)
-- Connections and messages to several, §4.15 to §4.18; what was read, §4.19; reserved layouts, §4.20.
field("uint32", "posted.channel", "Channel")
field("uint64", "posted.capacity", "Capacity", base.DEC)
field("uint32", "posted.generation", "Generation")
field("uint8", "rma.kind", "Operation", base.DEC, RMA_KINDS, 0x0f)
field("bool", "rma.notify", "Notify", 8, nil, 0x10)
field("uint32", "rma.region", "Region")
field("uint64", "rma.key", "Key", base.HEX)
field("uint64", "rma.length", "Length", base.DEC)
field("uint64", "rma.operand", "Operand", base.HEX)
field("uint64", "rma.compare", "Compare", base.HEX)
field("uint32", "rma.notify_port", "Port to notify")
field("uint32", "rma.immediate", "Immediate", base.HEX)
field("uint16", "rma.status", "Status", base.DEC, RMA_STATUS)
field("uint64", "rma.value", "Value", base.HEX)
field("uint8", "digest.says", "Says", base.DEC, DIGEST_SAYS, 0x03)
field("uint64", "digest.log_seq", "Log number", base.DEC)
field("uint64", "digest.hash", "Hash", base.HEX)
field("uint8", "member.status", "Status", base.DEC, MEMBER_STATUS)
field("uint8", "member.hops", "Hops")
field("uint32", "member.age_ms", "Age (ms)")
field("uint16", "domain.members", "Members")
field("uint64", "domain.generation", "Generation", base.DEC)
field("uint64", "domain.up", "Up", base.HEX)
field("bool", "connect.stream", "Byte stream", 8, nil, 0x04)
field("bool", "connect.service", "Service present", 8, nil, 0x08)
field("uint32", "connection", "End of the connection", base.HEX)
field("bool", "accept.refused", "Refused", 8, nil, 0x01)
field("uint16", "accept.reason", "Reason", base.DEC, ACCEPT_REASONS)
field("bool", "shutdown.send", "Sends no more", 8, nil, 0x01)
field("bool", "shutdown.receive", "Receives no more", 8, nil, 0x02)
field("bool", "shutdown.abort", "Abort", 8, nil, 0x04)
field("uint32", "shutdown.end", "Messages sent in all (low half)")
field("uint32", "multicast.lower", "First instance")
field("uint32", "multicast.upper", "Last instance")
field("uint16", "reject.reason", "Reason", base.DEC, REJECT_REASONS)
field("uint8", "group.kind", "News", base.DEC, GROUP_KINDS, 0x03)
-- Outside of a session, §3.
field("uint64", "cluster", "Cluster", base.HEX)
field("uint64", "node", "Node", base.HEX)
field("uint64", "incarnation", "Incarnation", base.DEC)
field("bool", "beacon.solicit", "Solicits", 8, nil, 0x01)
field("uint64", "hello.echo", "Echo", base.DEC)
field("uint64", "hello.features", "Features", base.HEX)
field("uint64", "hello.host", "Host", base.HEX)
field("uint32", "hello.session", "Session of the sender", base.DEC)
field("uint32", "hello.attempt", "Attempt")
field("uint32", "hello.eager_bytes_max", "Largest eager message")
field("uint32", "hello.credit_bytes", "Initial credit, bytes")
field("uint32", "hello.credit_messages", "Initial credit, messages")
field("uint32", "hello.tolerance_ms", "Tolerance (ms)")
field("uint8", "versions.min", "Lowest version")
field("uint8", "versions.max", "Highest version")
field("uint8", "parameter", "Parameter", base.HEX, PARAMETERS)
field("string", "parameter.name", "Name")
field("uint16", "parameter.mtu", "MTU")
field("uint32", "parameter.window", "Window")
field("bytes", "parameter.address", "Address")
field("string", "parameter.address_text", "Address")
field("uint32", "reset.session", "Session that is not known", base.DEC)
field("bytes", "cookie", "Cookie")
field("bytes", "later", "Of later versions")

polyrail.fields = fields

local malformed = ProtoExpert.new("polyrail.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local unknown = ProtoExpert.new("polyrail.skipped", "Frame of an unknown type, skipped", expert.group.UNDECODED,
    expert.severity.NOTE)
polyrail.experts = { malformed, unknown }

polyrail.prefs.ports = Pref.range("UDP ports", "7430-7431", "Data and beacon ports", 65535)
polyrail.prefs.check = Pref.bool("Verify checks", true, "Compare the CRC32C of each packet")

-- ----- CRC32C, §2.3 ---------------------------------------------------------------------------------------------------

-- The operators of one Lua are syntax errors to the other, so each is compiled only where it is known.
local bits = bit32 or bit
local bxor = bits and bits.bxor or load("return function(a, b) return a ~ b end")()
local band = bits and bits.band or load("return function(a, b) return a & b end")()
local rshift = bits and bits.rshift or load("return function(a, n) return a >> n end")()

local CRC = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        if crc % 2 == 1 then
            crc = bxor(rshift(crc, 1), 0x82f63b78)
        else
            crc = rshift(crc, 1)
        end
    end
    CRC[byte] = crc
end

-- `crc` is the sum so far, inverted.
local function crc_add(crc, bytes, from, to)
    for at = from, to - 1 do
        crc = bxor(rshift(crc, 8), CRC[band(bxor(crc, bytes:get_index(at)), 0xff)])
    end
    return crc
end

local function unsigned(crc)
    crc = bxor(crc, 0xffffffff)
    return crc < 0 and crc + 2 ^ 32 or crc
end

-- Where the payload of a frame begins, for those whose payload the check leaves out.
local function payload_offset(kind, flags)
    -- Tag, service and message checksum.
    local option = (flags:bitfield(4, 1) + flags:bitfield(2, 1) + flags:bitfield(0, 1)) * 8
    if kind == 0x01 then return 16 + option end
    if kind == 0x02 then return 24 + option end
    if kind == 0x03 then return 16 end
    if kind == 0x23 then return 32 + flags:bitfield(4, 1) * 8 end
    return nil
end

-- The sum that a packet should carry; nil if its frames cannot be told apart.
local function sum_of(tvb, kind, full)
    local bytes, length = tvb:bytes(), tvb:len()
    local crc = crc_add(0xffffffff, bytes, 0, 20)
    for _ = 1, 4 do
        crc = bxor(rshift(crc, 8), CRC[band(crc, 0xff)])
    end
    local covered, at = HEADER_BYTES, HEADER_BYTES
    while kind == 0 and not full and length - at >= 4 and tvb(at, 1):uint() ~= 0 do
        local len = tvb(at + 2, 2):le_uint()
        if len < 4 or at + len > length then return nil end
        local head = payload_offset(tvb(at, 1):uint(), tvb(at + 1, 1))
        if head then
            if head > len then return nil end
            crc = crc_add(crc, bytes, covered, at + head)
            covered = at + len
        end
        at = at + len + (8 - len % 8) % 8
    end
    -- Too little for a frame, where one should begin.
    if kind == 0 and not full and at < length and length - at < 4 and tvb(at, 1):uint() ~= 0 then return nil end
    return unsigned(crc_add(crc, bytes, covered, length))
end

-- ----- helpers --------------------------------------------------------------------------------------------------------

-- Values that a field may have, where not all are allowed. Numbers of 64 bits are compared as such.
local PACKET_MAX, MESSAGE_MAX = UInt64.new(0xffffffff, 0xffff), UInt64.new(0, 0x10000)
local NONE = UInt64.new(0, 0)

local function at_most(most)
    return function(range) return range:le_uint() <= most end
end

local function at_most_64(most)
    return function(range) return range:le_uint64() <= most end
end

local function between(least, most)
    return function(range) return range:le_uint() >= least and range:le_uint() <= most end
end

local function somebody(range)
    return range:le_uint64() ~= NONE
end

local ALLOWED = {
    ["bearer.tx_state"] = at_most(3), ["bearer.rx_state"] = at_most(3), ["refuse.reason"] = between(1, 3),
    ["reject.reason"] = at_most(3),
    ["bearer_set.bearer"] = at_most(15), ["bearer_set.there"] = at_most(1), ["bearer_set.address_bytes"] = at_most(24),
    ["link_set.status"] = at_most(3), ["granted"] = at_most_64(MESSAGE_MAX), ["done"] = at_most_64(MESSAGE_MAX),
    ["ack.largest"] = at_most_64(PACKET_MAX), ["probe.last_rx"] = at_most_64(PACKET_MAX),
    ["probe.next_tx"] = at_most_64(MESSAGE_MAX), ["bindings.origin"] = somebody, ["node"] = somebody,
    ["binding.scope"] = between(2, 2), ["binding.operation"] = between(1, 2),
}

-- What is being dissected: the bytes that were captured may be fewer than the packet had.
local Cursor = {}
Cursor.__index = Cursor

local function cursor(tvb, tree, at, stop)
    return setmetatable({ tvb = tvb, tree = tree, at = at, stop = stop, ok = true }, Cursor)
end

-- Adds a field of `size` bytes, and gives its range; nil when the bytes are not there.
function Cursor:take(name, size)
    if not self.ok or self.at + size > self.stop or self.at + size > self.tvb:len() then
        self.ok = false
        return nil
    end
    local range = self.tvb(self.at, size)
    if size > 0 then self.tree:add_le(F[name], range) end
    if ALLOWED[name] and not ALLOWED[name](range) then self:fault("value", self.at) end
    self.at = self.at + size
    return range
end

-- Bytes that are captured and must be zero.
local function expect_zero(tvb, tree, from, to)
    for at = from, math.min(to, tvb:len()) - 1 do
        if tvb(at, 1):uint() ~= 0 then
            tree:add_proto_expert_info(malformed, "malformed: reserved byte at " .. at)
            return
        end
    end
end

-- Bytes that must be zero.
function Cursor:reserved(size)
    if not self.ok or self.at + size > self.stop or self.at + size > self.tvb:len() then
        self.ok = false
        return
    end
    expect_zero(self.tvb, self.tree, self.at, self.at + size)
    self.at = self.at + size
end

-- A layout: names with sizes; `rsv` is what must be zero.
function Cursor:layout(layout)
    for index = 1, #layout, 2 do
        if layout[index] == "rsv" then
            self:reserved(layout[index + 1])
        else
            self:take(layout[index], layout[index + 1])
        end
    end
end

function Cursor:fault(what, at)
    self.tree:add_proto_expert_info(malformed, "malformed: " .. what .. " at " .. (at or self.at))
end

-- What is left, as payload.
function Cursor:payload(whole)
    local here = math.min(self.stop, self.tvb:len()) - self.at
    if here > 0 then self.tree:add(F.payload, self.tvb(self.at, here)) end
    self.tree:add(F["payload.len"], whole - (self.at - self.start)):set_generated()
end

-- An address as media write it: family, port and address in network order.
local function address_text(range)
    local length = range:len()
    local family = length > 0 and range(0, 1):uint() or 0
    if family == 4 and length == 7 then
        return string.format("%s:%d", tostring(range(3, 4):ipv4()), range(1, 2):uint())
    elseif family == 6 and length == 19 then
        return string.format("[%s]:%d", tostring(range(3, 16):ipv6()), range(1, 2):uint())
    end
    return nil
end

local function add_address(tree, range)
    tree:add(F["parameter.address"], range)
    local text = address_text(range)
    if text then tree:add(F["parameter.address_text"], range, text):set_generated() end
end

-- ----- frames, §4 -----------------------------------------------------------------------------------------------------

local MESSAGE_FLAGS = { "class", "unordered", "has_tag", "notify", "has_service", "has_crc" }

-- Service, tag and checksum, as flagged.
local function options(c, flags)
    if flags:bitfield(2, 1) == 1 then c:layout({ "service.kind", 4, "service.instance", 4 }) end
    if flags:bitfield(4, 1) == 1 then c:layout({ "tag", 8 }) end
    if flags:bitfield(0, 1) == 1 then c:layout({ "crc", 4, "rsv", 4 }) end
end

local function whole_message(c, flags, len)
    options(c, flags)
    c:payload(len)
end

local function piece(c, flags, len)
    local offset = c.tvb(c.at - 4, 4):le_uint()
    if offset == 0 then
        options(c, flags)
    elseif flags:bitfield(2, 1) == 1 or flags:bitfield(3, 1) == 1 or flags:bitfield(4, 1) == 1 or flags:bitfield(0, 1) == 1 then
        c:fault("value", c.start + 1)
    end
    if offset + len - (c.at - c.start) > c.tvb(c.start + 16, 4):le_uint() then c:fault("value", c.start + 20) end
    c:payload(len)
end

local function ack_ranges(c, _, len)
    local pairs_there = c.tvb(c.start + 6, 1):uint()
    if pairs_there > ACK_RANGES_MAX then return c:fault("count", c.start + 6) end
    if len ~= 48 + 4 * pairs_there then return c:fault("frame length", c.start + 2) end
    local high = c.tvb(c.start + 8, 8):le_uint64():tonumber()
    local low = high - c.tvb(c.start + 40, 4):le_uint()
    if low < 0 then return c:fault("ack range", c.start + 40) end
    local function tell(first, last)
        c.tree:add(F["ack.range"], string.format("%.0f-%.0f", first, last)):set_generated()
    end
    -- A range above 65,535 numbers goes on in pairs without a gap, a gap in pairs without a range.
    local gap = 0
    for _ = 1, pairs_there do
        local at = c.at
        local missing, received = c:take("ack.gap", 2), c:take("ack.received", 2)
        if not received then return end
        missing, received = missing:le_uint(), received:le_uint()
        if missing == 0 and received == 0 then return c:fault("ack range", at) end
        gap = gap + missing
        if received > 0 and gap == 0 then
            low = low - received
        elseif received > 0 then
            tell(low, high)
            high = low - gap - 1
            low = high - (received - 1)
            gap = 0
        end
        if low - gap < 0 then return c:fault("ack range", at) end
    end
    tell(low, high)
end

local RECORD = {
    "binding.kind", 4, "binding.lower", 4, "binding.upper", 4, "binding.port", 4, "binding.key", 8,
    "binding.scope", 1, "binding.operation", 1, "binding.weight", 1, "binding.exclusive", 1, "rsv", 12,
}

-- Equal parts to the end of a frame, each in a tree of its own.
local function records(layout, bytes, count_max, text, check)
    return function(c, _, len)
        local count = (len - (c.at - c.start)) / bytes
        if count ~= math.floor(count) then return c:fault("frame length", c.start + 2) end
        if count > count_max then return c:fault("count", c.start + 2) end
        for index = 1, count do
            if c.at + bytes > c.tvb:len() then return end
            local tree = c.tree:add(c.tvb(c.at, bytes), text .. " " .. index)
            local part = cursor(c.tvb, tree, c.at, c.at + bytes)
            part:layout(layout)
            if check then check(part, c.at) end
            c.at = part.at
        end
    end
end

local function range_of_record(c, at)
    if c.tvb(at + 4, 4):le_uint() > c.tvb(at + 8, 4):le_uint() then c:fault("value", at + 8) end
    if c.tvb(at + 27, 1):uint() > 1 then c:fault("reserved byte", at + 27) end
end

local function bindings(c, flags, len)
    if len == 32 then return c:fault("count", c.start + 2) end
    records(RECORD, 40, BINDINGS_MAX, "Record", range_of_record)(c, flags, len)
end

local function name_digest(c, flags)
    if flags:bitfield(6, 2) == 3 then c:fault("value", c.start + 1) end
end

local function bearer_set(c, _, len)
    if len ~= 48 then return c:fault("frame length", c.start + 2) end
    if c.at + 24 > c.tvb:len() then return end
    if c.tvb(c.start + 9, 1):uint() == 0 then expect_zero(c.tvb, c.tree, c.start + 10, c.start + 17) end
    local bytes = math.min(c.tvb(c.start + 16, 1):uint(), 24)
    if bytes > 0 then add_address(c.tree, c.tvb(c.start + 24, bytes)) end
    expect_zero(c.tvb, c.tree, c.start + 24 + bytes, c.start + 48)
end

local function multicast(c, flags, len)
    local offset, tagged = c.tvb(c.start + 28, 4):le_uint(), flags:bitfield(4, 1) == 1
    if tagged and offset ~= 0 then c:fault("value", c.start + 1) end
    if c.tvb(c.start + 16, 4):le_uint() > c.tvb(c.start + 20, 4):le_uint() then c:fault("value", c.start + 20) end
    if tagged then c:layout({ "tag", 8 }) end
    if offset + len - (c.at - c.start) > c.tvb(c.start + 24, 4):le_uint() then c:fault("value", c.start + 28) end
    c:payload(len)
end

-- The end of a connection: bit 31 set; bit 30 tells the asking side's from the accepting side's.
local function check_end(c, highest, lowest)
    local top = c.tvb(c.start + 11, 1):uint()
    if top < lowest or top > highest then c:fault("value", c.start + 8) end
end

local function check_port(c, at)
    local port = c.tvb(c.start + at, 4):le_uint()
    if port == 0 or port >= 0x80000000 then c:fault("value", c.start + at) end
end

local function connect(c, flags)
    if flags:bitfield(4, 1) == 0 then expect_zero(c.tvb, c.tree, c.start + 32, c.start + 40) end
    check_end(c, 0xbf, 0x80)
    check_port(c, 12)
    check_port(c, 16)
end

local function accept(c, flags)
    check_end(c, 0xff, 0xc0)
    local reason = c.tvb(c.start + 16, 2):le_uint()
    if flags:bitfield(7, 1) == 0 then
        check_port(c, 12)
        if reason ~= 0 then c:fault("reserved byte", c.start + 16) end
    else
        expect_zero(c.tvb, c.tree, c.start + 12, c.start + 16)
        if reason < 1 or reason > 3 then c:fault("value", c.start + 16) end
    end
end

local function shutdown(c)
    check_end(c, 0xff, 0x80)
end

local function data(c, _, len)
    c:payload(len)
end

local function transfer_piece(c, _, len)
    if c.tvb(c.start + 8, 8):le_uint64() + UInt64.new(len - 16, 0) > MESSAGE_MAX then c:fault("value", c.start + 8) end
    c:payload(len)
end

local function announcement(c, flags, _)
    if c.tvb(c.start + 24, 8):le_uint64() > MESSAGE_MAX then c:fault("value", c.start + 24) end
    options(c, flags)
    if c.ok and c.at < c.stop then c:fault("frame length", c.start + 2) end
end

-- Of each type: its name, its fixed part behind the frame header, which bits of the flags mean something, and what
-- follows. A frame that nothing follows has exactly the length of its fixed part, and may have a check of its values.
local FRAMES = {
    [0x01] = { "MSG", { "from", 4, "to", 4, "seq", 4 }, MESSAGE_FLAGS, whole_message },
    [0x02] = { "EFRAG", { "from", 4, "to", 4, "seq", 4, "total", 4, "offset", 4 }, MESSAGE_FLAGS, piece },
    [0x03] = { "RFRAG", { "transfer", 4, "offset", 8 }, {}, transfer_piece },
    [0x04] = { "ACK", {
        "ack.link", 2, "ack.pairs", 1, "ack.rx_batch", 1, "ack.largest", 8, "ack.stamp_echo", 4, "ack.delay", 4,
        "ack.rx_bytes", 8, "ack.rx_clock", 4, "ack.ce_count", 4, "ack.first", 4, "ack.queueing", 4,
    }, {}, ack_ranges },
    [0x05] = { "BEARER_STATE", {
        "bearer", 1, "bearer.tx_state", 1, "bearer.rx_state", 1, "rsv", 1, "bearer.tx_backlog", 4,
        "bearer.rx_backlog", 4, "bearer.rx_window", 4, "rsv", 2, "bearer.senders", 2, "bearer.rx_rate", 4,
        "bearer.seq", 4,
    }, {} },
    [0x06] = { "CREDIT", { "port", 4, "credit.messages", 4, "rsv", 4, "credit.bytes", 8 }, {} },
    [0x07] = { "REFUSE", {
        "control", 4, "from", 4, "to", 4, "seq", 4, "refuse.reason", 2, "rsv", 2, "refuse.retry_after_us", 4,
        "rsv", 4,
    }, { "class" } },
    [0x08] = { "RTS", { "from", 4, "to", 4, "seq", 4, "token", 4, "rsv", 4, "total", 8 }, MESSAGE_FLAGS,
        announcement },
    [0x09] = { "CTS", { "token", 4, "transfer", 4, "rsv", 4, "granted", 8, "done", 8 }, {} },
    [0x0A] = { "TRANSFER_ABORT", { "control", 4, "token", 4, "rsv", 4 }, {} },
    [0x0B] = { "POSTED", {
        "port", 4, "posted.channel", 4, "transfer", 4, "posted.capacity", 8, "posted.generation", 4, "rsv", 4,
    }, {} },
    [0x0C] = { "RMA_REQ", {
        "control", 4, "token", 4, "rma.region", 4, "rma.key", 8, "offset", 8, "rma.length", 8, "rma.operand", 8,
        "rma.compare", 8, "rma.notify_port", 4, "rma.immediate", 4,
    }, { "rma.kind", "rma.notify" }, data },
    [0x0D] = { "RMA_RESP", {
        "control", 4, "token", 4, "rma.status", 2, "rsv", 2, "transfer", 4, "rsv", 4, "rma.value", 8,
    }, {}, data },
    [0x10] = { "BINDINGS", { "control", 4, "bindings.origin", 8, "bindings.incarnation", 8, "bindings.log_seq", 8 },
        {}, bindings },
    [0x11] = { "NAME_DIGEST", {
        "control", 4, "node", 8, "incarnation", 8, "digest.log_seq", 8, "digest.hash", 8,
    }, { "digest.says" }, nil, name_digest },
    [0x12] = { "MEMBER", { "rsv", 4 }, {}, records({
        "node", 8, "incarnation", 8, "member.status", 1, "member.hops", 1, "rsv", 2, "member.age_ms", 4,
    }, 24, 2730, "Rumour") },
    [0x13] = { "MON_DOMAIN", { "domain.members", 2, "rsv", 2, "domain.generation", 8, "domain.up", 8 }, {},
        records({ "node", 8 }, 8, 64, "Member") },
    [0x14] = { "PORT_CLOSED", { "control", 4, "port", 4, "rsv", 4 }, {} },
    [0x18] = { "PROBE", { "probe.about", 2, "probe.size", 2, "probe.id", 8, "probe.target", 8 }, { "probe.kind" } },
    [0x19] = { "PROBE_REPLY", {
        "probe.about", 2, "probe.size", 2, "probe.id", 8, "probe.last_rx", 8, "probe.next_tx", 8,
        "probe.last_rx_age", 4, "probe.stall_us", 4,
    }, { "probe.kind", "probe.carrier" } },
    [0x1C] = { "LINK_SET", {
        "control", 4, "link_set.link", 2, "link_set.status", 1, "rsv", 1, "link_set.number", 4,
    }, {} },
    [0x1D] = { "BEARER_SET", {
        "control", 4, "bearer_set.bearer", 1, "bearer_set.there", 1, "parameter.mtu", 2, "parameter.window", 4,
        "bearer_set.address_bytes", 1, "rsv", 7,
    }, {}, bearer_set },
    [0x20] = { "CONNECT", {
        "control", 4, "connection", 4, "from", 4, "to", 4, "credit.messages", 4, "credit.bytes", 8,
        "service.kind", 4, "service.instance", 4,
    }, { "class", "connect.stream", "connect.service" }, nil, connect },
    [0x21] = { "ACCEPT", {
        "control", 4, "connection", 4, "port", 4, "accept.reason", 2, "rsv", 2, "credit.messages", 4,
        "credit.bytes", 8,
    }, { "accept.refused" }, nil, accept },
    [0x22] = { "SHUTDOWN", {
        "control", 4, "connection", 4, "shutdown.end", 4, "rsv", 8,
    }, { "shutdown.send", "shutdown.receive", "shutdown.abort" }, nil, shutdown },
    [0x23] = { "MULTICAST", {
        "from", 4, "seq", 4, "service.kind", 4, "multicast.lower", 4, "multicast.upper", 4, "total", 4, "offset", 4,
    }, { "class", "has_tag" }, multicast },
    [0x24] = { "CONSUMED", {
        "control", 4, "from", 4, "to", 4, "seq", 4, "reject.reason", 2, "rsv", 2,
    }, { "class" } },
    [0x25] = { "GROUP", {
        "control", 4, "service.kind", 4, "service.instance", 4, "port", 4, "credit.messages", 4, "credit.bytes", 8,
    }, { "group.kind" } },
    [0x80] = { "CLOSE", { "close.reason", 2, "rsv", 2 }, {} },
}

local function fixed_bytes(layout)
    local sum = 4
    for index = 2, #layout, 2 do sum = sum + layout[index] end
    return sum
end

-- The bits that each field of the flags covers.
local BITS = {
    class = 0x03, unordered = 0x04, has_tag = 0x08, notify = 0x10, has_service = 0x20, has_crc = 0x80,
    ["probe.kind"] = 0x0f, ["probe.carrier"] = 0x80, ["rma.kind"] = 0x0f, ["rma.notify"] = 0x10,
    ["connect.stream"] = 0x04, ["connect.service"] = 0x08, ["accept.refused"] = 0x01, ["shutdown.send"] = 0x01, ["shutdown.receive"] = 0x02,
    ["shutdown.abort"] = 0x04, ["digest.says"] = 0x03, ["group.kind"] = 0x03,
}

local function has_unknown_bits(flags, names)
    local known = 0
    for _, name in ipairs(names) do known = known + BITS[name] end
    return band(flags, known) ~= flags
end

-- The content of one frame of a known type.
local function dissect_frame(tvb, tree, at, len, entry)
    local flags = tvb(at + 1, 1)
    local flag_tree = tree:add(F["frame.flags"], flags)
    for _, name in ipairs(entry[3]) do flag_tree:add(F[name], flags) end
    tree:add_le(F["frame.len"], tvb(at + 2, 2))
    local c = cursor(tvb, tree, at + 4, at + len)
    c.start = at
    local fixed = fixed_bytes(entry[2])
    if len < fixed or (not entry[4] and len > fixed) then return c:fault("frame length", at + 2) end
    if has_unknown_bits(flags:uint(), entry[3]) then c:fault("reserved byte", at + 1) end
    if entry[3][1] == "probe.kind" and flags:bitfield(4, 4) > 4 then c:fault("value", at + 1) end
    c:layout(entry[2])
    if c.ok and entry[4] then entry[4](c, flags, len) end
    if c.ok and entry[5] then entry[5](c, flags) end
    -- An optional field that the flags promise, beyond the end of the frame.
    if not c.ok and at + len <= tvb:len() then c:fault("frame length", at + 2) end
end

-- All frames of a body. `names` collects them for the summary.
local function dissect_frames(tvb, tree, at, whole, names)
    local here = tvb:len()
    while at < whole and at < here do
        if tvb(at, 1):uint() == 0 then
            tree:add(F.pad, tvb(at, here - at))
            return expect_zero(tvb, tree, at, here)
        end
        if whole - at < 4 then
            tree:add_proto_expert_info(malformed, "malformed: truncated at " .. at)
            return
        end
        if here - at < 4 then return end
        local kind, len = tvb(at, 1):uint(), tvb(at + 2, 2):le_uint()
        if len < 4 or at + len > whole then
            tree:add(F.frame, tvb(at, 1))
            tree:add_proto_expert_info(malformed, "malformed: frame length at " .. (at + 2))
            return
        end
        local entry = FRAMES[kind]
        local name = entry and entry[1] or string.format("0x%02x", kind)
        names[#names + 1] = name
        local frame = tree:add(F.frame, tvb(at, 1))
        frame:set_text(name .. ", " .. len .. " bytes")
        frame:set_len(math.min(len, here - at))
        if entry then
            dissect_frame(tvb, frame, at, len, entry)
        elseif kind >= 0x80 then
            frame:add_proto_expert_info(malformed, string.format("malformed: critical frame 0x%02x at %d", kind, at))
            return
        else
            frame:add_proto_expert_info(unknown)
            if len > 4 and here >= at + len then frame:add(F["frame.content"], tvb(at + 4, len - 4)) end
        end
        expect_zero(tvb, frame, at + len, math.min(whole, at + len + (8 - len % 8) % 8))
        at = at + len + (8 - len % 8) % 8
    end
end

-- ----- outside of a session, §3 ---------------------------------------------------------------------------------------

-- Whether bytes are UTF-8 without control characters.
local function is_name(tvb, from, to)
    local at = from
    while at < to do
        local first = tvb(at, 1):uint()
        local more = first < 0x80 and 0 or first >= 0xc2 and first < 0xe0 and 1 or first >= 0xe0 and first < 0xf0 and 2
            or first >= 0xf0 and first < 0xf5 and 3 or nil
        if not more or at + more >= to or first < 0x20 or first == 0x7f then return false end
        for next_at = at + 1, at + more do
            local byte = tvb(next_at, 1):uint()
            if byte < 0x80 or byte >= 0xc0 then return false end
        end
        local second = more > 0 and tvb(at + 1, 1):uint() or 0
        -- Control characters of two bytes; longer forms than needed, surrogates, beyond the last.
        if first == 0xc2 and second < 0xa0 or first == 0xe0 and second < 0xa0 or first == 0xed and second >= 0xa0
            or first == 0xf0 and second < 0x90 or first == 0xf4 and second >= 0x90 then
            return false
        end
        at = at + more + 1
    end
    return true
end

local function dissect_parameters(c)
    local here = c.tvb:len()
    local bearers, names = 0, 0
    while c.at < c.stop and c.at < here do
        if c.tvb(c.at, 1):uint() == 0 then return expect_zero(c.tvb, c.tree, c.at, here) end
        if c.stop - c.at < 4 then return c:fault("truncated") end
        if here - c.at < 4 then return end
        local at, kind, len = c.at, c.tvb(c.at, 1):uint(), c.tvb(c.at + 2, 2):le_uint()
        if len < 4 or at + len > c.stop then return c:fault("frame length", at + 2) end
        if at + len > here then return end
        local tree = c.tree:add(F.parameter, c.tvb(at, 1))
        tree:set_len(len)
        tree:add_le(F["frame.len"], c.tvb(at + 2, 2))
        local part = cursor(c.tvb, tree, at + 4, at + len)
        if kind == 1 then
            names = names + 1
            if names > 1 then part:fault("count", at) end
            if len > 4 then tree:add(F["parameter.name"], c.tvb(at + 4, len - 4)) end
            if len > 67 or not is_name(c.tvb, at + 4, at + len) then part:fault("text", at + 4) end
        elseif kind == 2 then
            bearers = bearers + 1
            if bearers > BEARERS_MAX then part:fault("count", at) end
            part:layout({ "bearer", 1, "rsv", 1, "parameter.mtu", 2, "parameter.window", 4 })
            if not part.ok or len > 36 then
                part:fault("frame length", at + 2)
            else
                if c.tvb(at + 4, 1):uint() >= BEARERS_MAX then part:fault("value", at + 4) end
                if len > 12 then add_address(tree, c.tvb(at + 12, len - 12)) end
            end
        elseif kind == 3 then
            tree:add(F.cookie, c.tvb(at + 4, len - 4))
        elseif kind >= 0x80 then
            part:fault(string.format("critical frame 0x%02x", kind), at)
        end
        c.at = at + len + (8 - len % 8) % 8
    end
end

local HELLO = {
    "cluster", 8, "node", 8, "incarnation", 8, "hello.echo", 8, "hello.features", 8, "hello.host", 8,
    "hello.session", 4, "hello.attempt", 4, "hello.eager_bytes_max", 4, "hello.credit_bytes", 4,
    "hello.credit_messages", 4, "hello.tolerance_ms", 4, "versions.min", 1, "versions.max", 1, "bearer", 1, "rsv", 5,
}

local function hello(c)
    c:layout(HELLO)
    if not c.ok then return end
    if c.tvb(96, 1):uint() > c.tvb(97, 1):uint() then c:fault("value", 96) end
    if c.tvb(98, 1):uint() >= BEARERS_MAX then c:fault("value", 98) end
    dissect_parameters(c)
end

local function beacon(c)
    c:layout({ "cluster", 8, "node", 8, "incarnation", 8, "bearer", 1, "beacon.solicit", 1 })
    c.at = c.at + 6
    if c.at > c.stop then c.ok = false end
end

local function versions(c)
    c:layout({ "node", 8, "versions.min", 1, "versions.max", 1 })
    if c.ok and c.tvb(32, 1):uint() > c.tvb(33, 1):uint() then c:fault("value", 32) end
    c.at = c.at + 6
    if c.at > c.stop then c.ok = false end
end

local function reset(c)
    c:layout({ "reset.session", 4, "rsv", 4, "node", 8, "incarnation", 8 })
end

local function cookie(c)
    c:layout({ "hello.attempt", 4, "rsv", 4, "cookie", 32 })
end

local OUTSIDE = { hello, hello, cookie, beacon, versions, reset }

-- ----- packets, §2 ----------------------------------------------------------------------------------------------------

local function dissect_header(tvb, tree, whole)
    local first = tvb(0, 1)
    tree:add(F.version, first)
    local version, kind = first:bitfield(0, 4), first:bitfield(4, 4)
    -- Beacons and lists of versions have the same layout in every version.
    if version ~= VERSION and kind ~= 4 and kind ~= 5 then
        return nil, "wire version " .. version .. " at 0"
    end
    tree:add(F.type, first)
    if whole < HEADER_BYTES then return nil, "truncated at " .. whole end
    if not TYPES[kind] then return nil, "packet type " .. kind .. " at 0" end
    local flags = tree:add(F.flags, tvb(1, 1))
    for _, name in ipairs({ "key_phase", "sealed", "full_check", "ack_eliciting", "ack_now", "train_last", "ack_soon" }) do
        flags:add(F["flags." .. name], tvb(1, 1))
    end
    local c = cursor(tvb, tree, 2, HEADER_BYTES)
    c:layout({ "link", 2, "session", 4, "number", 8, "stamp", 4, "check", 4 })
    local is_data = kind == 0
    if tvb(1, 1):bitfield(0, 1) ~= 0 or (not is_data and tvb(1, 3):uint() ~= 0) then return kind, "reserved byte at 1" end
    if tvb(8, 8):le_uint64():tonumber() > NUMBER_MAX then return kind, "value at 8" end
    return kind, nil
end

-- Whether the check of a packet that was captured whole is right.
local function check_is_right(tvb, kind)
    if tvb(1, 1):bitfield(6, 1) == 1 then return tvb(20, 4):le_uint() == 0 end
    local sum = sum_of(tvb, kind, tvb(1, 1):bitfield(5, 1) == 1)
    -- Where frames cannot be told apart, that is the fault.
    return sum == nil or sum == tvb(20, 4):le_uint()
end

local function dissect_body(tvb, tree, kind, whole, names)
    if kind == 0 and tvb(1, 1):bitfield(6, 1) == 1 then
        local body = tvb:len() - HEADER_BYTES - SEAL_BYTES
        if body < 0 then return tree:add_proto_expert_info(malformed, "malformed: truncated at " .. tvb:len()) end
        if body > 0 then tree:add(F.sealed, tvb(HEADER_BYTES, body)) end
        tree:add(F.tag_of_seal, tvb(HEADER_BYTES + body, SEAL_BYTES))
        names[1] = "sealed"
    elseif kind == 0 then
        dissect_frames(tvb, tree, HEADER_BYTES, whole, names)
    else
        local c = cursor(tvb, tree, HEADER_BYTES, whole)
        OUTSIDE[kind](c)
        if not c.ok and tvb:len() == whole then
            c:fault("truncated", whole)
        elseif c.ok and kind >= 4 and c.at < tvb:len() then
            tree:add(F.later, tvb(c.at, tvb:len() - c.at))
        end
    end
end

function polyrail.dissector(tvb, pinfo, root)
    if tvb:len() == 0 then return 0 end
    pinfo.cols.protocol = "Polyrail"
    local whole = tvb:reported_len()
    local tree = root:add(polyrail, tvb())
    if tvb:len() < math.min(whole, HEADER_BYTES) then return tvb:len() end
    local kind, fault = dissect_header(tvb, tree, whole)
    if not fault and polyrail.prefs.check and tvb:len() == whole and not check_is_right(tvb, kind) then
        fault = "checksum at 20"
    end
    local names = {}
    if fault then
        tree:add_proto_expert_info(malformed, "malformed: " .. fault)
    else
        dissect_body(tvb, tree, kind, whole, names)
    end
    local info = kind and TYPES[kind] or "malformed"
    if kind == 0 then
        local link, number = tvb(2, 2):le_uint(), tvb(8, 8):le_uint64():tonumber()
        info = string.format("%s link %d number %.0f", info, link, number)
    end
    info = info .. (#names > 0 and ": " .. table.concat(names, " ") or "")
    pinfo.cols.info = fault and info .. " [malformed: " .. fault .. "]" or info
    tree:append_text(", " .. info)
    return tvb:len()
end

-- Packets on other ports are known by their check: nothing else has it.
local function looks_like_ours(tvb)
    if tvb:len() < HEADER_BYTES or tvb:len() ~= tvb:reported_len() then return false end
    local first = tvb(0, 1)
    if first:bitfield(0, 4) ~= VERSION or not TYPES[first:bitfield(4, 4)] then return false end
    if tvb(1, 1):bitfield(0, 2) ~= 0 or tvb(1, 1):bitfield(6, 1) == 1 then return false end
    return sum_of(tvb, first:bitfield(4, 4), tvb(1, 1):bitfield(5, 1) == 1) == tvb(20, 4):le_uint()
end

polyrail:register_heuristic("udp", function(tvb, pinfo, root)
    if not looks_like_ours(tvb) then return false end
    polyrail.dissector(tvb, pinfo, root)
    return true
end)

local udp = DissectorTable.get("udp.port")
local ports = ""
function polyrail.init()
    if ports ~= polyrail.prefs.ports then
        if ports ~= "" then udp:remove(ports, polyrail) end
        ports = polyrail.prefs.ports
        if ports ~= "" then udp:add(ports, polyrail) end
    end
end

-- ----- express frames, §2.5 -------------------------------------------------------------------------------------------

local E = {
    mark = ProtoField.uint16("polyrail_express.mark", "Mark", base.HEX),
    to_port = ProtoField.uint16("polyrail_express.to_port", "To port"),
    from_port = ProtoField.uint16("polyrail_express.from_port", "From port"),
    content = ProtoField.uint8("polyrail_express.content", "Content", base.DEC, CONTENTS),
    behind = ProtoField.bool("polyrail_express.behind", "Behind datagrams", 8, nil, 0x01),
    number = ProtoField.uint16("polyrail_express.number", "Number"),
    heard = ProtoField.uint16("polyrail_express.heard", "Heard"),
    length = ProtoField.uint16("polyrail_express.length", "Length"),
    sum = ProtoField.uint32("polyrail_express.sum", "Sum", base.HEX),
    sender = ProtoField.string("polyrail_express.sender", "Sender"),
    receiver = ProtoField.string("polyrail_express.receiver", "Receiver"),
}
local express_fields = {}
for _, made in pairs(E) do express_fields[#express_fields + 1] = made end
express.fields = express_fields
local damaged = ProtoExpert.new("polyrail_express.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
express.experts = { damaged }

local EXPRESS_HEADER_BYTES = 18
local MARK = 0x7072

local function express_sum(tvb, length)
    local bytes = tvb:bytes()
    local crc = crc_add(0xffffffff, bytes, 0, 14)
    return unsigned(crc_add(crc, bytes, EXPRESS_HEADER_BYTES, EXPRESS_HEADER_BYTES + length))
end

local function express_address(tree, made, range)
    local length = range(0, 1):uint()
    local text = length <= 24 and length > 0 and address_text(range(1, length))
    if text then
        tree:add(made, range, text)
    else
        tree:add_proto_expert_info(damaged, "malformed: address")
    end
end

function express.dissector(tvb, pinfo, root)
    -- Others use the type too.
    if tvb:len() < EXPRESS_HEADER_BYTES or tvb(0, 2):uint() ~= MARK then return 0 end
    pinfo.cols.protocol = "Polyrail express"
    local tree = root:add(express, tvb(0, EXPRESS_HEADER_BYTES))
    for index, name in ipairs({ "mark", "to_port", "from_port" }) do tree:add(E[name], tvb(index * 2 - 2, 2)) end
    tree:add(E.content, tvb(6, 1))
    tree:add(E.behind, tvb(7, 1))
    for index, name in ipairs({ "number", "heard", "length" }) do tree:add(E[name], tvb(index * 2 + 6, 2)) end
    tree:add(E.sum, tvb(14, 4))
    local content, length = tvb(6, 1):uint(), tvb(12, 2):uint()
    pinfo.cols.info = "Express " .. (CONTENTS[content] or "unknown")
    local rest = tvb:len() - EXPRESS_HEADER_BYTES
    if EXPRESS_HEADER_BYTES + length > tvb:reported_len() then
        tree:add_proto_expert_info(damaged, "malformed: length")
        return tvb:len()
    end
    if rest < length then return tvb:len() end
    if polyrail.prefs.check and express_sum(tvb, length) ~= tvb(14, 4):uint() then
        tree:add_proto_expert_info(damaged, "malformed: checksum")
        return tvb:len()
    end
    if content == 0 and length > 0 then
        polyrail.dissector(tvb(EXPRESS_HEADER_BYTES, length):tvb(), pinfo, root)
    elseif length == 50 and (content == 1 or content == 2) then
        express_address(tree, E.sender, tvb(EXPRESS_HEADER_BYTES, 25))
        express_address(tree, E.receiver, tvb(EXPRESS_HEADER_BYTES + 25, 25))
    else
        tree:add_proto_expert_info(damaged, "malformed: content")
    end
    return tvb:len()
end

DissectorTable.get("ethertype"):add(0x88b5, express)
