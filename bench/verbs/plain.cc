// The work of a C program with verbs' own functions. Inlined into each loop; see wrapped.cc.
#include <cerrno>
#include <cstdlib>

#include "bench/verbs/loops.h"

namespace rkv::bench {
namespace {

[[gnu::always_inline]] inline void post(ibv_qp_ex* queue, const Places& places,
                                        std::uint64_t rounds, std::uint32_t count) {
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ibv_wr_start(queue);
    for (std::uint32_t i = 0; i < count; ++i) {
      queue->wr_id = i;
      queue->wr_flags = i + 1 == count ? IBV_SEND_SIGNALED : 0;
      ibv_wr_rdma_read(queue, places.remote_key, places.remote + std::uint64_t{i} * places.bytes);
      ibv_wr_set_sge(queue, places.local_key, places.local + std::uint64_t{i} * places.bytes,
                     places.bytes);
    }
    if (ibv_wr_complete(queue) != 0) failed();
  }
}

// Fills an array with the fields that WorkCompletion has.
[[gnu::always_inline]] inline std::uint32_t take(ibv_cq_ex* queue, ibv_wc* out,
                                                 std::uint32_t room) {
  ibv_poll_cq_attr none{};
  const int found = ibv_start_poll(queue, &none);
  if (found == ENOENT) return 0;
  if (found != 0) failed();
  std::uint32_t count = 0;
  do {
    ibv_wc* const to = &out[count++];
    to->wr_id = queue->wr_id;
    to->status = queue->status;
    to->qp_num = ibv_wc_read_qp_num(queue);
    if (to->status != IBV_WC_SUCCESS) {
      to->vendor_err = ibv_wc_read_vendor_err(queue);
      continue;
    }
    to->opcode = ibv_wc_read_opcode(queue);
    to->byte_len = ibv_wc_read_byte_len(queue);
    to->wc_flags = ibv_wc_read_wc_flags(queue);
    if ((to->wc_flags & IBV_WC_WITH_IMM) != 0) to->imm_data = ibv_wc_read_imm_data(queue);
  } while (count < room && ibv_next_poll(queue) == 0);
  ibv_end_poll(queue);
  return count;
}

[[gnu::always_inline]] inline std::uint64_t poll(CountedDevice& device, std::uint64_t rounds,
                                                 std::uint32_t count) {
  ibv_wc done[kMany];
  std::uint64_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    device.complete(count);
    const std::uint32_t found = take(device.completions(), done, count);
    store_all(done);
    for (std::uint32_t i = 0; i < found; ++i) {
      if (done[i].status != IBV_WC_SUCCESS) failed();
      sum += done[i].wr_id;
    }
  }
  return sum;
}

[[gnu::always_inline]] inline std::uint64_t poll_in_place(CountedDevice& device,
                                                          std::uint64_t rounds,
                                                          std::uint32_t count) {
  std::uint64_t sum = 0;
  ibv_cq_ex* const queue = device.completions();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    device.complete(count);
    ibv_poll_cq_attr none{};
    const int found = ibv_start_poll(queue, &none);
    if (found == ENOENT) continue;
    if (found != 0) failed();
    std::uint32_t left = count;
    do {
      if (queue->status != IBV_WC_SUCCESS) failed();
      sum += queue->wr_id + ibv_wc_read_byte_len(queue);
    } while (--left != 0 && ibv_next_poll(queue) == 0);
    ibv_end_poll(queue);
  }
  return sum;
}

}  // namespace

void failed() {
  std::abort();
}

void plain_post_one(ibv_qp_ex* queue, const Places& places, std::uint64_t rounds) {
  post(queue, places, rounds, 1);
}
void plain_post_many(ibv_qp_ex* queue, const Places& places, std::uint64_t rounds) {
  post(queue, places, rounds, kMany);
}
std::uint64_t plain_poll_one(CountedDevice& device, std::uint64_t rounds) {
  return poll(device, rounds, 1);
}
std::uint64_t plain_poll_many(CountedDevice& device, std::uint64_t rounds) {
  return poll(device, rounds, kMany);
}
std::uint64_t plain_poll_in_place_one(CountedDevice& device, std::uint64_t rounds) {
  return poll_in_place(device, rounds, 1);
}
std::uint64_t plain_poll_in_place_many(CountedDevice& device, std::uint64_t rounds) {
  return poll_in_place(device, rounds, kMany);
}

}  // namespace rkv::bench
