// What the tests' device can do.
#pragma once

namespace rkv::testing_support {

// Shared memory has atomics on every machine. Fails the test if there is no device to ask.
bool device_has_atomics();

}  // namespace rkv::testing_support
