#include "client/cli/output.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "client/cli/text.h"

namespace rkv::cli {

void set_bytes(Json& object, const char* name, std::string_view bytes, bool hex) {
  const std::string field = name;
  if (hex) {
    object[field + "_hex"] = to_hex(bytes);
  } else if (is_utf8(bytes)) {
    object[field] = bytes;
  } else {
    object[field + "_base64"] = to_base64(bytes);
  }
}

void print_raw(std::string_view bytes) {
  std::string quoted;
  if (stdout_is_terminal()) bytes = quoted = for_terminal(bytes);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

void print_json(const Json& value) {
  // A server's message may be invalid UTF-8; values went through set_bytes().
  print_raw(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool stdout_is_terminal() {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  return is_terminal;
}

}  // namespace rkv::cli
