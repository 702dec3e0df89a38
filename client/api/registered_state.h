// The state of a RegisteredBuffer: the buffer, and its entry among those that operations find.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <utility>

#include "client/link/user_memory.h"
#include "rkv/registered_buffer.h"

namespace rkv {

struct RegisteredBuffer::State {
  State(std::shared_ptr<client::UserMemory> of, std::shared_ptr<client::UserBuffer> allocated)
      : memory(std::move(of)), buffer(std::move(allocated)) {}
  ~State() { memory->forget(*buffer); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<client::UserMemory> memory;
  const std::shared_ptr<client::UserBuffer> buffer;
};

}  // namespace rkv
