// Finds READs and atomics that completed without their data, which SoftRoCE of Linux 6.1 does when
// packets are lost.
//
// Suppose that a request and the READ or atomic behind it were carried out, and the answers to both
// were lost. The retried request is acknowledged with the number of the last packet that the peer
// has seen, which is that of the READ. The kernel takes this plain acknowledgement for the READ's
// answer: it reports success and writes nothing. (rxe_comp.c: COMPST_WRITE_SEND, and likewise the
// retried answer in check_psn().) The buffer then still has its old bytes, such as the answer of an
// earlier READ.
//
// So a secret number is put into the last bytes of each buffer, which the last packet overwrites.
// If a completion finds the number there, the operation failed: it was carried out, but its result
// is lost.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <vector>

#include "common/bytes.h"
#include "common/random.h"

namespace rkv::rdma::verbs {

class Unwritten {
 public:
  // `ring`: a power of two, more than the operations in flight.
  explicit Unwritten(std::size_t ring) : mark_(random_from_kernel()), ends_(ring) {}

  // Marks the buffer of operation `number`. Buffers of less than 8 bytes have no mark.
  void expect(std::uint64_t number, MutableBytes buffer) {
    const std::byte*& end = ends_[number & (ends_.size() - 1)];
    end = nullptr;
    if (buffer.size() < sizeof mark_) return;
    std::byte* const last = buffer.data() + buffer.size() - sizeof mark_;
    store_le(last, mark_);
    end = last;
  }
  // Notes that operation `number` writes no buffer.
  void expect_nothing(std::uint64_t number) { ends_[number & (ends_.size() - 1)] = nullptr; }

  // Whether the operation has not written its buffer. REQUIRES: it has completed with success.
  bool has(std::uint64_t number) const {
    const std::byte* const end = ends_[number & (ends_.size() - 1)];
    return end != nullptr && load_le<std::uint64_t>(end) == mark_;
  }

 private:
  const std::uint64_t mark_;
  std::vector<const std::byte*> ends_;  // the last 8 bytes of each operation's buffer
};

}  // namespace rkv::rdma::verbs
