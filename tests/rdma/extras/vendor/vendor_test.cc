// Adapters' own transports on another device: a refusal that names the verb.
#include "rkv/rdma/efa.h"
#include "rkv/rdma/mlx5.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct Stranger {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  CompletionQueue queue = need(CompletionQueue::create(device, {}));
};

template <class T>
void expect_unsupported(const Result<T>& answer, const char* verb) {
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnsupported) << to_string(answer.error());
  EXPECT_STREQ(answer.error().call, verb);
}

TEST(Efa, IsRefusedByNameOnAnotherDevice) {
  Stranger here;
  expect_unsupported(efa_attributes(here.device), "efadv_query_device");
  expect_unsupported(SrdQueuePair::create(here.pd, here.queue, here.queue, {}),
                     "efadv_query_device");
}

TEST(DynamicConnections, AreRefusedByNameOnAnotherDevice) {
  Stranger here;
  EXPECT_FALSE(is_mlx5(here.device));
  expect_unsupported(DcInitiator::create(here.pd, here.queue, {}), "mlx5dv_create_qp");
  const auto srq = need(SharedReceiveQueue::create(here.pd, {.length = 8}));
  expect_unsupported(DcTarget::create(here.pd, here.queue, srq, {}), "mlx5dv_create_qp");
}

}  // namespace
}  // namespace rkv::rdma
