// Bytes as text and back: hex, base64, the escapes of TSV files, UTF-8.
//
// TSV escapes: \t \n \r \\ and \xNN; everything else stands for itself. escape_tsv() keeps
// printable ASCII and valid UTF-8, so that text stays readable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rkv::cli {

std::string to_hex(std::string_view bytes);
std::optional<std::string> from_hex(std::string_view text);  // even length, either case

std::string to_base64(std::string_view bytes);  // RFC 4648, padded
std::optional<std::string> from_base64(std::string_view text);

// Some editors write this mark at the beginning of a UTF-8 file.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
bool is_utf8(std::string_view bytes);  // RFC 3629: shortest forms, no surrogates

std::string escape_tsv(std::string_view bytes);
std::optional<std::string> unescape_tsv(std::string_view text);
// Position of the first escape that unescape_tsv() does not know.
std::size_t bad_escape_at(std::string_view text);

// Bytes of others for a person's terminal: control characters, which could move the cursor, write
// to the clipboard or set the window's title, appear as \xNN. Line ends and TAB stay.
std::string for_terminal(std::string_view bytes);

}  // namespace rkv::cli
