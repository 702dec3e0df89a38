// The message transports on verbs: the scenarios of every transport, on the address in
// RKV_RDMA_ADDRESS.
//
// Mutations tried: each of these changes makes a test of this program fail, or never end.
// MSG-1        send_copy() polls for completions                    SendingReapsNothing
// MSG-2        messages that did not fit into `out` are lost        MessagesThatDoNotFit...
//              invalid input is reported before earlier messages    ADoorbellThatCannotBe...
// MSG-5        arm() does not poll once more                        BackPressure..., ManyMess...
// MSG-6        the end is checked before the messages               WhatCameBeforeTheEnd...
// MSG-7        a token's checksum is not compared                   ABadTokenIsRefused...
// SENDRECV-1   sends have no limit, or a send queue for half        ManyMessages..., SendingReap...
//              a completion queue for one send                      SendsThatWereLost...
// SENDRECV-2   one send more than there are buffers                 all streams
// SENDRECV-3   posted when a message comes, never again, or twice   AreWhatTheyAreCalled
// RINGTRANS-1  a send queue for the slots only; unlimited credits   WhoTakesNoCredits...
// RINGTRANS-2  a receive is not posted again                        BackPressure..., ManyMess...
// RINGTRANS-3  any SEND of 8 bytes is a credit                      CreditsAndRecords...
// OPS-1        a slot is free when it has no waiter                 WhatIsStoppedOrDestroyed...
// OPS-2        a request more than there are slots                  NoMoreAreOutstanding...
// OPS-3        of several completions only the first is delivered   NoMoreAreOutstanding...
//              completions without a waiter are dropped             WhatIsStoppedOrDestroyed...
// OPS-4        a receive that is stopped gives up its message       AWaitThatEndsEarly...
// ACCEPT-1     try_accept() waits for the handshake                 AHalfOpenClient...
//              it does not wait for the key, or is not armed        APeerThatSendsNoKey...
// STREAM-5     a stream still counts a destroyed waiter             all streams

#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/send_receive.h"
#include "tests/rdma/extras/message/stream_scenarios.h"
#include "tests/rdma/extras/message/transport_scenarios.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct OverSendReceive {
  using Builder = SendReceiveBuilder;
  static Builder usual() { return {}; }
  static Builder tiny() {
    return {.options = {.message_bytes = 512, .send_buffers = 2, .receive_buffers = 4}};
  }
  static SocketAddress address() { return device_address(); }
};
constexpr RingOptions kTinyRing = {.ring_bytes = 4096, .slots = 4, .message_bytes = 512};

struct OverCreditRing {
  using Builder = CreditRingBuilder;
  static Builder usual() { return {}; }
  static Builder tiny() { return {.options = kTinyRing}; }
  static SocketAddress address() { return device_address(); }
};

// The peer's key is a memory window's, on devices that have windows.
struct OverWindow {
  using Builder = CreditRingBuilder;
  static RingOptions with_window(RingOptions options) {
    options.access = LeasePolicy::kRequireWindows;
    return options;
  }
  static Builder usual() { return {.options = with_window({})}; }
  static Builder tiny() { return {.options = with_window(kTinyRing)}; }
  static SocketAddress address() { return device_address(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(SendReceive, TransportScenarios, OverSendReceive);
INSTANTIATE_TYPED_TEST_SUITE_P(SendReceive, StreamScenarios, OverSendReceive);
INSTANTIATE_TYPED_TEST_SUITE_P(CreditRing, TransportScenarios, OverCreditRing);
INSTANTIATE_TYPED_TEST_SUITE_P(CreditRing, StreamScenarios, OverCreditRing);
INSTANTIATE_TYPED_TEST_SUITE_P(Window, TransportScenarios, OverWindow);

}  // namespace
}  // namespace rkv::rdma
