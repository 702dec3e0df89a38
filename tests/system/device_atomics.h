// The abilities of the tests' device.
#pragma once

namespace rkv::testing_support {

// Over shared memory: true. Over verbs: the device says it. The test fails if no device is there.
bool device_has_atomics();

}  // namespace rkv::testing_support
