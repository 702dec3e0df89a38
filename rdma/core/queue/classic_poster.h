// ClassicPoster: a queue pair that is posted to with ibv_post_send(3), behind the interface of an
// extended queue pair, for providers without ibv_create_qp_ex(3) or with lists of pieces that are
// wrong there. A batch is collected here and posted at its end. Not public.
//
// Invariants:
//  POSTER-1  A batch is posted whole or not at all, if it is longer than the send queue or has an
//      operation that the queue pair lacks: then ibv_wr_complete returns ENOMEM or EOPNOTSUPP.
//  POSTER-2  A provider may accept the first requests of a batch and refuse the next one. Then the
//      queue pair goes to the error state: the accepted requests complete, and no later request
//      follows a gap.
//  POSTER-3  Inline data is copied when it is set. The caller's buffer is not read afterwards.
//  POSTER-4  On iWARP every request but a READ is fenced: it starts after the earlier READs.
//      Linux's soft-iWARP completes a SEND before an earlier READ otherwise, and a completion must
//      end all earlier requests (batch.h).
//  POSTER-5  On iWARP a READ of no bytes has a piece of no bytes. Without a piece soft-iWARP READs
//      what the place in its send queue named before: as many bytes, to that address.
//
// Thread safety: one thread, the queue pair's.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rkv/rdma/flags.h"

namespace rkv::rdma::detail {

class ClassicPoster final : public ibv_qp_ex {
 public:
  struct Options {
    SendOps operations = SendOps::kNone;
    std::uint32_t send_length = 0;  // as granted
    std::uint32_t pieces = 1;       // of one request
    std::uint32_t inline_bytes = 0;
    bool iwarp = false;
  };
  // `to` must outlive the object.
  ClassicPoster(ibv_qp* to, const Options& options);
  // Whether POSTER-2 has happened.
  bool refused_in_the_middle() const { return refused_in_the_middle_; }
  ClassicPoster(const ClassicPoster&) = delete;
  ClassicPoster& operator=(const ClassicPoster&) = delete;

 private:
  static ClassicPoster& of(ibv_qp_ex* self) { return *static_cast<ClassicPoster*>(self); }
  template <ibv_wr_opcode opcode>
  static ibv_send_wr& begin(ibv_qp_ex* self);
  void offer(SendOps operations);
  ibv_send_wr& add(ibv_wr_opcode opcode);
  void refuse(int error);
  std::size_t current() const;
  void set_pieces(std::span<const ibv_sge> pieces);
  void set_inline(const void* data, std::size_t length);
  void set_address(ibv_ah* handle, std::uint32_t qp_num, std::uint32_t qkey);
  void clear();
  int complete();
  int post(std::size_t count);

  ibv_qp* to_;
  bool iwarp_;
  bool refused_in_the_middle_ = false;
  std::size_t room_;  // requests of the longest batch
  std::size_t most_pieces_;
  std::size_t inline_bytes_;
  // One more than `room_`: requests beyond it are written to the last and never posted.
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> pieces_;    // `most_pieces_` for each request
  std::vector<std::byte> copies_;  // inline data, `inline_bytes_` for each request
  std::size_t count_ = 0;          // requests of the open batch
  int refusal_ = 0;                // why the open batch will not be posted
};

}  // namespace rkv::rdma::detail
