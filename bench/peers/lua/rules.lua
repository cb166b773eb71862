-- The twenty rules of foregate-modules.kdl.
local bit = require "bit"

local band, bor, lshift, tobit = bit.band, bit.bor, bit.lshift, bit.tobit
local byte, find, lower, sub = string.byte, string.find, string.lower, string.sub
local ngx, var = ngx, ngx.var
local matched = ngx.re.find
local get_method, set_header, clear_header = ngx.req.get_method, ngx.req.set_header, ngx.req.clear_header

local function set(list)
    local names = {}
    for _, name in ipairs(list) do
        names[name] = true
    end
    return names
end

-- Networks as pairs of address and mask.
local function networks(list)
    local pairs = {}
    for _, network in ipairs(list) do
        local a, b, c, d, bits = network:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)/(%d+)$")
        pairs[#pairs + 1] = tobit(((a * 256 + b) * 256 + c) * 256 + d)
        pairs[#pairs + 1] = lshift(-1, 32 - bits)
    end
    return pairs
end

local METHODS = set { "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS" }
local KEYS = set { "key-1", "key-2", "key-3", "key-4" }
local HOSTS = set { "a.example", "b.example", "c.example", "d.example", "e.example", "f.example" }
local OFFICES = networks { "10.0.0.0/8", "192.168.0.0/16" }
local DENIED = networks {
    "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "100.64.0.0/10", "233.252.0.0/24", "127.9.0.0/16",
}

local function within(address, list)
    if #address ~= 4 then
        return false
    end
    local a, b, c, d = byte(address, 1, 4)
    local number = bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
    for index = 1, #list, 2 do
        if band(number, list[index + 1]) == list[index] then
            return true
        end
    end
    return false
end

local function refused(path, agent)
    if find(path, "/.git", 1, true) or find(path, "/.env", 1, true) then
        return 404
    end
    if matched(path, [[\.(php|aspx?|jsp|cgi)$]], "jo") then
        return 404
    end
    if not METHODS[get_method()] then
        return 405
    end
    if agent and matched(agent, "sqlmap|nikto|masscan|zgrab", "ijo") then
        return 403
    end
    if not agent then
        return 403
    end
    if sub(path, 1, 7) == "/admin/" and not within(var.binary_remote_addr, OFFICES) then
        return 403
    end
    if sub(path, 1, 5) == "/api/" and not KEYS[var.http_x_api_key or ""] then
        return 401
    end
    local query = var.args
    if query then
        query = lower(query)
        if find(query, "%3cscript", 1, true) or find(query, "union+select", 1, true) then
            return 403
        end
    end
    if HOSTS[var.host] then
        return 410
    end
    local referer = var.http_referer
    if referer and (find(referer, "spam.example", 1, true) or find(referer, "casino.example", 1, true)) then
        return 403
    end
    if var.cookie_banned == "1" then
        return 403
    end
    if #path > 512 then
        return 414
    end
    if within(var.binary_remote_addr, DENIED) then
        return 403
    end
end

local _M = {}

function _M.request()
    local agent = var.http_user_agent
    local status = refused(var.uri, agent)
    if status then
        return ngx.exit(status)
    end
    set_header("X-Device", find(agent, "Mobile", 1, true) and "mobile" or "desktop")
    local language = var.http_accept_language
    if language and sub(language, 1, 2) == "de" then
        set_header("X-Language", "de")
    end
    set_header("X-Client-IP", var.remote_addr)
    set_header("X-Site", var.host)
    clear_header("X-Debug")
    clear_header("X-Internal-User")
    clear_header("X-Internal-Role")
end

function _M.response()
    local header = ngx.header
    header["X-Frame-Options"] = "deny"
    header["X-Content-Type-Options"] = "nosniff"
    header["ETag"] = nil
    if ngx.status == 200 and header["Content-Type"] == "application/octet-stream" then
        header["Cache-Control"] = "public, max-age=60"
    end
end

return _M
