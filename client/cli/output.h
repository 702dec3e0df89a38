// Standard output of kvclient: values for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace rkv::cli {

using Json = nlohmann::ordered_json;

// Sets object[name]. Bytes that are not UTF-8 go to object[name + "_base64"]; with `hex` all bytes
// go to object[name + "_hex"].
void set_bytes(Json& object, const char* name, std::string_view bytes, bool hex);

void print_json(const Json& value);
// Prints the bytes as they are; on a terminal without what could command it (for_terminal()).
void print_raw(std::string_view bytes);
bool stdout_is_terminal();

}  // namespace rkv::cli
