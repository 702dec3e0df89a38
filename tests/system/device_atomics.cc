#include "tests/system/device_atomics.h"

#include <gtest/gtest.h>

#include "rkv/rdma/device.h"
#include "tests/system/world.h"

namespace rkv::testing_support {

bool device_has_atomics() {
  if (test_transport() != Transport::kVerbs) return true;
  const auto device = rdma::Device::of_connection_manager();
  EXPECT_TRUE(device) << to_string(device.error());
  const auto limits = device->attributes();
  EXPECT_TRUE(limits) << to_string(limits.error());
  return limits->atomics != rdma::AtomicScope::kNone;
}

}  // namespace rkv::testing_support
