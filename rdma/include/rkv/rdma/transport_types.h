// Transports as types: what a queue pair of each kind can do, decided when the program is compiled.
//
//   template <HasRead T>
//   void prefetch(BasicBatch<T>& batch);           // RC; not UC, not UD
//   static_assert(Connected<Uc> && !Reliable<Uc>); // a message may be lost, and nobody is told
//
// Queue pairs, batches and what is not yet connected are templates of these tags (queue_pair.h,
// batch.h); a call that a transport does not have has no viable overload. Without a tag they are
// RC. Queue pairs of Srd and Dci come from their adapters' own libraries, not from here.
//
// Thread safety: types only. Source: InfiniBand specification 9.6 and table 38, ibv_create_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <concepts>

#include "rkv/rdma/flags.h"

namespace rkv::rdma {

// Reliable connection: one peer, in order, acknowledged; everything that verbs have.
struct Rc {
  static constexpr ibv_qp_type kType = IBV_QPT_RC;
  static constexpr const char* kName = "RC";
};
// Unreliable connection: one peer, in order, not acknowledged. A completion says that the message
// has left, not that it has arrived: messages can be lost, and a WRITE can arrive in part.
struct Uc {
  static constexpr ibv_qp_type kType = IBV_QPT_UC;
  static constexpr const char* kName = "UC";
};
// Unreliable datagram: every message names its receiver, is at most one MTU long, and can be lost,
// doubled by the network or overtaken.
struct Ud {
  static constexpr ibv_qp_type kType = IBV_QPT_UD;
  static constexpr const char* kName = "UD";
};
// Scalable reliable datagram of Amazon's adapters: acknowledged, unordered.
struct Srd {
  static constexpr ibv_qp_type kType = IBV_QPT_DRIVER;
  static constexpr const char* kName = "SRD";
};
// Initiator of a dynamic connection of Mellanox's adapters: reliable, with an address per request.
struct Dci {
  static constexpr ibv_qp_type kType = IBV_QPT_DRIVER;
  static constexpr const char* kName = "DCI";
};

template <class T, class... Any>
concept OneOf = (std::same_as<T, Any> || ...);

template <class T>
concept TransportType = OneOf<T, Rc, Uc, Ud, Srd, Dci>;
// One peer for as long as the queue pair lives: no address in a request.
template <class T>
concept Connected = OneOf<T, Rc, Uc>;
// Each request names its receiver.
template <class T>
concept Datagram = OneOf<T, Ud, Srd, Dci>;
// Acknowledged: success of a send means that the peer's device has the bytes.
template <class T>
concept Reliable = OneOf<T, Rc, Srd, Dci>;
// What comes second was sent second.
template <class T>
concept Ordered = OneOf<T, Rc, Uc, Dci>;
template <class T>
concept HasWrite = OneOf<T, Rc, Uc, Srd, Dci>;
template <class T>
concept HasRead = OneOf<T, Rc, Srd, Dci>;
template <class T>
concept HasAtomics = OneOf<T, Rc, Dci>;
// Memory windows and invalidation. UC has windows too, for WRITEs; they are not offered here.
template <class T>
concept HasWindows = OneOf<T, Rc>;
// Made by this library. The others need calls of their adapters' libraries.
template <class T>
concept Creatable = OneOf<T, Rc, Uc, Ud>;

// Of `wanted` those operations that the transport has: a device refuses the others.
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
