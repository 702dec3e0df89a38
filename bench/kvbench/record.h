// Encodes a YCSB record, which has several named fields of bytes, into one value of rkv.
//
//   offset  bytes    what
//   0       1        format: 0x01
//   1       1 to 3   number of fields, as a varint (7 bits a byte, the least first)
//   ...     1 to 4   length of each field, as a varint, in their order
//   ...              the bytes of all fields, without gaps
//
// Names are not stored: field i is named fieldnameprefix and i. A record of YCSB's ten fields of
// 100 bytes takes 1,012 bytes. Bytes from a server are checked, never trusted.
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

// Upper limit of the size of a record with `fields` fields of up to `field_bytes`.
std::size_t most_record_bytes(std::size_t fields, std::size_t field_bytes);

// Writes the record to `value` and reuses the memory of `value`.
void encode_record(const std::vector<std::string_view>& fields, std::string& value);

// Sets `fields` to views into `value`, which must outlive them. False: the value is not a valid
// record.
bool decode_record(std::string_view value, std::vector<std::string_view>& fields);

// Replaces a field of the record in `value` by `bytes`; in place if the length is unchanged. False:
// not a valid record, or the record does not have the field. `spare` is scratch memory.
bool replace_field(std::string& value, std::size_t field, std::string_view bytes,
                   std::vector<std::string_view>& fields, std::string& spare);

// Appends random bytes with the alphabets of YCSB's RandomByteIterator: a blank plus random bits
// under a mask, which is 31, 63 and 95 for three bytes in turn.
void append_random_bytes(Random& random, std::size_t bytes, std::string& out);

// The bytes that YCSB writes with dataintegrity=true. They depend only on key and field name, so
// that a reader can check a field. Replaces the content of `out`.
void deterministic_bytes(std::string_view key, std::string_view field_name, std::size_t bytes,
                         std::string& out);

}  // namespace rkv::kvbench
