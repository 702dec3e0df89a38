// How a YCSB record, some named fields of bytes, is put into one value of rkv.
//
//   offset  bytes    what
//   0       1        format: 0x01
//   1       1 to 3   number of fields, as a varint (7 bits a byte, the least first)
//   ...     1 to 4   length of each field, as a varint, in their order
//   ...              the bytes of all fields, without gaps
//
// The names are not stored: field i is named fieldnameprefix and i. A record of YCSB's ten fields
// of 100 bytes takes 1,012 bytes. Bytes from a server are checked, never trusted.
//
// Thread safety: values, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/kvbench/generators.h"
#include "common/random.h"

namespace rkv::kvbench {

// The most bytes that a record of `fields` fields of up to `field_bytes` takes.
std::size_t most_record_bytes(std::size_t fields, std::size_t field_bytes);

// Replaces what `value` holds; its memory is used again.
void encode_record(const std::vector<std::string_view>& fields, std::string& value);

// Views into `value`, which must outlive them; false: it is no such record.
bool decode_record(std::string_view value, std::vector<std::string_view>& fields);

// One field of the record in `value` becomes `bytes`; false: it is no record, or has no such field.
// In place when the length stays as it is. `spare` is scratch memory.
bool replace_field(std::string& value, std::size_t field, std::string_view bytes,
                   std::vector<std::string_view>& fields, std::string& spare);

// As many bytes as YCSB's RandomByteIterator makes, of the same alphabets: printable, 30 random
// bits in six characters.
void append_random_bytes(Random& random, std::size_t bytes, std::string& out);

// What YCSB writes with dataintegrity=true: made of key and field name alone, so that a reader can
// tell whether a field is whole. Replaces what `out` holds.
void deterministic_bytes(std::string_view key, std::string_view field_name, std::size_t bytes,
                         std::string& out);

}  // namespace rkv::kvbench
