// READs that a provider without effects accepts at once, posted and polled: for counting
// instructions with checked mode off and on (rdma/README.md has the counts, by the preset dev with
// GCC 12). They are the difference of two runs, divided by 10,000:
//
//   for n in 1000 11000; do RKV_RDMA_CHECKED=1 valgrind --tool=callgrind rdma_checked_cost $n; done
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/checked.h"
#include "rkv/rdma/queue_pair.h"

namespace {

using namespace rkv;        // NOLINT(google-build-using-namespace)
using namespace rkv::rdma;  // NOLINT(google-build-using-namespace)

constexpr detail::RequestLimits kLimits = {.inline_bytes = 64, .pieces = 4, .read_pieces = 4};
struct Opened : Batch {
  explicit Opened(ibv_qp_ex* provider) : Batch(provider, kLimits) {}
};

struct Nothing {
  ibv_context context{};
  ibv_pd pd{.context = &context, .handle = 1};
  ibv_cq_ex queue{};
  ibv_qp_ex qp{};
  ibv_mr region{};
  alignas(64) std::array<std::byte, 64> bytes{};

  Nothing() {
    queue.context = &context;
    queue.cqe = 16;
    queue.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return 0; };
    queue.end_poll = [](ibv_cq_ex*) {};
    queue.read_qp_num = [](ibv_cq_ex*) { return std::uint32_t{0x11}; };
    queue.read_opcode = [](ibv_cq_ex*) { return IBV_WC_RDMA_READ; };
    qp.qp_base.context = &context;
    qp.qp_base.pd = &pd;
    qp.qp_base.qp_num = 0x11;
    qp.qp_base.send_cq = qp.qp_base.recv_cq = ibv_cq_ex_to_cq(&queue);
    qp.wr_start = [](ibv_qp_ex*) {};
    qp.wr_abort = [](ibv_qp_ex*) {};
    qp.wr_complete = [](ibv_qp_ex*) { return 0; };
    qp.wr_rdma_read = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {};
    qp.wr_set_sge = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t) {};
    region.context = &context;
    region.pd = &pd;
    region.addr = bytes.data();
    region.length = bytes.size();
    region.lkey = 5;
    checked::begin(region);
    checked::queue_begins(ibv_cq_ex_to_cq(&queue), &queue);
    checked::pair_begins(&qp.qp_base, &qp, nullptr, 64);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  static Nothing nothing;
  const RegisteredSpan to = RegisteredSpan::unchecked(nothing.bytes, 5);
  for (std::uint64_t i = 0; i < count; ++i) {
    Opened batch(&nothing.qp);
    batch.read(i, OpFlags::kSignaled, to, {.address = 0, .length = 64, .rkey = 1});
    if (!std::move(batch).submit()) return EXIT_FAILURE;
    ibv_poll_cq_attr none{};
    nothing.queue.wr_id = i;
    if (ibv_start_poll(&nothing.queue, &none) != 0) return EXIT_FAILURE;
    ibv_end_poll(&nothing.queue);
  }
  return checked::in_flight() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
