// The digest of a copy: names, lengths and bytes of all files, in the order in which they are sent.
// Each message has its own checksum. The digest detects missing or reordered parts.
//
// Thread safety: one thread.
#pragma once

#include <span>
#include <string_view>

#include "common/hash.h"

namespace rkv::server {

class CopyDigest {
 public:
  void file(std::string_view name, std::uint64_t bytes) {
    stream_.update(std::as_bytes(std::span(name)));
    stream_.update(std::as_bytes(std::span(&bytes, 1)));
  }
  void piece(Bytes bytes) { stream_.update(bytes); }
  std::uint64_t digest() const { return stream_.digest(); }

 private:
  Xxh3Stream stream_{0};
};

}  // namespace rkv::server
