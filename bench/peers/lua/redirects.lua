-- A list of redirects, `source,target` in each line.
local ngx, var = ngx, ngx.var
local redirect = ngx.redirect

local targets = {}
local _M = {}

function _M.load(path)
    for line in io.lines(path) do
        local source, target = line:match("^([^,]+),([^,]+)$")
        targets[source] = target
    end
end

function _M.follow()
    local target = targets[var.uri]
    if target then
        return redirect(target, 301)
    end
    return ngx.exit(404)
end

return _M
