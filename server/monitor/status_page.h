// The page at /: page/status.html, embedded by the build.
#pragma once

#include <string_view>

namespace rkv::server {

extern const std::string_view status_page;

}  // namespace rkv::server
