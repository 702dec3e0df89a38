// The queue pairs of Amazon's EFA on another device: a refusal that names the verb.
#include "rkv/rdma/efa.h"

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

}  // namespace
}  // namespace rkv::rdma
