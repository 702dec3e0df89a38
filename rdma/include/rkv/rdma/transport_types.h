// Transports as types: the operations of each kind of queue pair, checked at compile time.
//
//   template <HasRead T>
//   void prefetch(BasicBatch<T>& batch);           // RC; not UC, not UD
//   static_assert(Connected<Uc> && !Reliable<Uc>); // a message may be lost without an error
//
// Queue pairs, batches and prepared queue pairs are templates of these tags (queue_pair.h,
// batch.h). A call that a transport lacks has no viable overload. The default tag is Rc. Queue
// pairs of Srd are those of efa.h, a library of its own.
//
// Thread safety: types only. Source: InfiniBand specification 9.6 and table 38, ibv_create_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <concepts>

#include "rkv/rdma/flags.h"

namespace rkv::rdma {

// Reliable connection: one peer, in order, acknowledged; has all verbs operations.
struct Rc {
  static constexpr ibv_qp_type kType = IBV_QPT_RC;
  static constexpr const char* kName = "RC";
};
// Unreliable connection: one peer, in order, not acknowledged. A completion means that the message
// was sent, not that it arrived: messages can be lost, and a WRITE can arrive in part.
struct Uc {
  static constexpr ibv_qp_type kType = IBV_QPT_UC;
  static constexpr const char* kName = "UC";
};
// Unreliable datagram: every message names its receiver and is at most one MTU long. It can be
// lost, duplicated by the network or reordered.
struct Ud {
  static constexpr ibv_qp_type kType = IBV_QPT_UD;
  static constexpr const char* kName = "UD";
};
// Scalable reliable datagram of Amazon's adapters: acknowledged, unordered.
struct Srd {
  static constexpr ibv_qp_type kType = IBV_QPT_DRIVER;
  static constexpr const char* kName = "SRD";
};

template <class T, class... Any>
concept OneOf = (std::same_as<T, Any> || ...);

template <class T>
concept TransportType = OneOf<T, Rc, Uc, Ud, Srd>;
// One peer for the lifetime of the queue pair: requests carry no address.
template <class T>
concept Connected = OneOf<T, Rc, Uc>;
// Each request names its receiver.
template <class T>
concept Datagram = OneOf<T, Ud, Srd>;
// Acknowledged: success of a send means that the peer's device has the bytes.
template <class T>
concept Reliable = OneOf<T, Rc, Srd>;
template <class T>
concept HasWrite = OneOf<T, Rc, Uc, Srd>;
template <class T>
concept HasRead = OneOf<T, Rc, Srd>;
template <class T>
concept HasAtomics = OneOf<T, Rc>;
// Memory windows and invalidation. UC has windows too, for WRITEs; they are not offered here.
template <class T>
concept HasWindows = OneOf<T, Rc>;
// Created by BasicQueuePair::create().
template <class T>
concept Creatable = OneOf<T, Rc, Uc, Ud>;

// Returns those of the `wanted` operations that the transport has: a device refuses the others.
template <TransportType T>
constexpr SendOps operations_of(SendOps wanted) {
  constexpr SendOps kMessages = SendOps::kSend | SendOps::kSendImm;
  if constexpr (std::same_as<T, Ud>) {
    return wanted & kMessages;
  } else if constexpr (std::same_as<T, Uc>) {
    return wanted & (kMessages | SendOps::kWrite | SendOps::kWriteImm);
  } else {
    return wanted;
  }
}

}  // namespace rkv::rdma
