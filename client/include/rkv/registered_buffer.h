// rkv::RegisteredBuffer: memory that long values are READ into, and put from, without a copy.
//
//   auto buffer = shared_client->allocate_buffer(64 << 20);
//   shared_client->get_into("block", buffer->bytes().subspan(0, 1 << 20));
//
// Created by allocate_buffer() of a Client, AsyncClient or SharedClient, page-aligned and zeroed.
// It may outlive its client. The buffer of an AsyncClient or a SharedClient serves that client; for
// others it is memory like any other. That of a Client serves every Client of the same transport
// object, and is passed as a whole. A Client that was made by connect(options) has its own
// transport object.
//
// No thread may use the bytes while an operation uses them, and operations that are under way
// together need different ones: no output may overlap the output or the key of another one. One
// call with several outputs refuses that. Bytes behind the value may change, too. The memory stays
// registered until READs into it have ended, also if the object is destroyed before. Moving the
// object does not move its bytes. Use of one that was moved from ends the process with a sentence.
//
// A forked child that inherits it finds bytes that are not its own: it allocates another one.
//
// Thread safety: bytes() any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "rkv/export.h"
#include "rkv/fork.h"

namespace rkv {

class RKV_EXPORT RegisteredBuffer {
 public:
  RegisteredBuffer(RegisteredBuffer&&) noexcept;
  RegisteredBuffer& operator=(RegisteredBuffer&&) noexcept;
  ~RegisteredBuffer();
  std::span<std::byte> bytes() const;
  // Whether this is a child of the process that allocated it.
  bool is_inherited() const;

 private:
  friend class AsyncClient;
  friend class Client;
  friend class SharedClient;
  struct State;  // client/api/registered_state.h
  explicit RegisteredBuffer(std::unique_ptr<State> state);
  ForkOwned<State> state_;
};

}  // namespace rkv
