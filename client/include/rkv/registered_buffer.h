// rkv::RegisteredBuffer: memory that long values are READ into, and put from, without a copy.
//
//   auto buffer = client->allocate_buffer(64 << 20);
//   client->get_into("block", buffer->bytes().subspan(0, 1 << 20));
//
// Created by allocate_buffer() of a Client, AsyncClient or SharedClient, page-aligned and zeroed.
// It may outlive its client. A buffer serves every client of the same transport object. A client
// that was made by connect(options) has its own transport object: its buffers serve that client
// only.
//
// No thread may write the buffer while an operation uses it, nor destroy it. The destructor of one
// that READs may still land in waits for their end. Moving the object does not move its bytes.
//
// Thread safety: bytes() any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "rkv/export.h"

namespace rkv {

namespace client {
class UserBuffer;
}  // namespace client

class RKV_EXPORT RegisteredBuffer {
 public:
  RegisteredBuffer(RegisteredBuffer&&) noexcept;
  RegisteredBuffer& operator=(RegisteredBuffer&&) noexcept;
  ~RegisteredBuffer();
  std::span<std::byte> bytes() const;

 private:
  friend class AsyncClient;
  friend class Client;
  friend class SharedClient;
  explicit RegisteredBuffer(std::unique_ptr<client::UserBuffer> buffer);
  std::unique_ptr<client::UserBuffer> buffer_;
};

}  // namespace rkv
