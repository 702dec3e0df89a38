// The page at /: page/status.html, as the build has put it into the program.
#pragma once

#include <string_view>

namespace rkv::server {

extern const std::string_view status_page;

}  // namespace rkv::server
