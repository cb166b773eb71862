-- A page in the place of an origin's error. It is made in the header filter, where its length must be known, and
-- replaces the body in the body filter, so that the origin's connection is read to the answer's end and kept.
local concat = table.concat
local find, gsub = string.find, string.gsub
local ngx, var = ngx, ngx.var

local REASONS = {
    [404] = "Not Found", [500] = "Internal Server Error", [502] = "Bad Gateway",
    [503] = "Service Unavailable", [504] = "Gateway Timeout",
}
local ESCAPED = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- Texts and, at every second place, the names of what stands between them.
local parts = {}
local _M = {}

function _M.load(path)
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    local at = 1
    for from, name, to in text:gmatch("(){([a-z-]+)}()") do
        parts[#parts + 1] = text:sub(at, from - 1)
        parts[#parts + 1] = name
        at = to
    end
    parts[#parts + 1] = text:sub(at)
end

local function escaped(text)
    if find(text, "[&<>\"']") then
        return (gsub(text, "[&<>\"']", ESCAPED))
    end
    return text
end

function _M.head()
    local status = ngx.status
    local reason = REASONS[status]
    if not reason then
        return
    end
    local values = {
        status = status, reason = reason, path = escaped(var.uri), host = escaped(var.host),
        ["client-ip"] = var.remote_addr,
    }
    local page = {}
    for index = 1, #parts, 2 do
        page[index] = parts[index]
        page[index + 1] = values[parts[index + 1]]
    end
    page = concat(page)
    local header = ngx.header
    header["Content-Type"] = "text/html; charset=utf-8"
    header["Content-Length"] = #page
    header["ETag"] = nil
    ngx.ctx.page = page
end

function _M.body()
    local ctx = ngx.ctx
    local page = ctx.page
    if page then
        ngx.arg[1] = page
        ctx.page = ""
    end
end

return _M
