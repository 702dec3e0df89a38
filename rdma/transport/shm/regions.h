// Announces regions from a server to its clients, and from a client to its servers (peer_regions.h
// is the receiving end of those).
//
//   Exporter      a process's list of regions and of the connections to which they are announced
//   RegionTable   a client's mappings of one server's regions
//
// Invariants
//  SHMREG-1  A connection learns of every region that exists when it is accepted, and of each later
//      addition or removal, in that order. All announcements are sent under one lock, and a socket
//      keeps order.
//  SHMREG-2  Sends never block. A client whose socket is full has not read it for some hundred new
//      regions: its connection ends.
//  SHMREG-3  READs are bounded by the announced length, and the region's memory is never shorter
//      than that (memory.h): a copy cannot fault.
//
// Thread safety: Exporter: any thread. RegionTable: belongs to its queue's thread.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "common/random.h"
#include "rdma/transport/host_memory.h"
#include "rdma/transport/shm/host_page.h"
#include "rdma/transport/shm/protocol.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma::shm {

// A region and its memory, as its owner holds them.
struct Export {
  SharedMemory shared{};
  std::size_t length = 0;
  Access access = Access::kRemoteRead;
  std::uint32_t key = 0;
};

class Exporter {
 public:
  Exporter() : random_(random_from_kernel()) {}

  // Creates the host page, which shows clients that we live. Call before the first connection is
  // accepted.
  Status open();

  void add(Export& region);     // assigns a key
  void remove(Export& region);  // REQUIRES: add() was called

  // Sends `accept` with `descriptors` and our host page, then all regions that `grant` allows;
  // later regions follow until unsubscribe(). kDisconnected: the client has disconnected. kBusy:
  // more regions than fit into the socket.
  Status subscribe(int socket, Access grant, Accept accept, std::vector<int> descriptors);
  // For a client: sends the server all regions that `grant` allows; later regions follow until
  // unsubscribe(). kInvalidArgument: more regions than a server accepts.
  Status share(int socket, Access grant);
  void unsubscribe(int socket);

 private:
  struct Subscriber {
    int socket;
    Access grant;
  };
  int send_regions(const Subscriber& to, std::span<Export* const> regions,
                   std::size_t per_packet) const;
  void announce(Export& region) RKV_REQUIRES(mutex_);
  void withdraw(const Export& region) RKV_REQUIRES(mutex_);
  template <class Send>
  void tell_all(Send send) RKV_REQUIRES(mutex_);

  Mutex mutex_;
  std::unique_ptr<HostPage> host_ RKV_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, Export*> regions_ RKV_GUARDED_BY(mutex_);
  std::vector<Subscriber> subscribers_ RKV_GUARDED_BY(mutex_);
  Random random_ RKV_GUARDED_BY(mutex_);
};

class RegionTable {
 public:
  struct Entry {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    bool atomics = false;
    Mapping memory;
    // Returns where the range is mapped here; nullptr if it is not wholly inside. No sum can
    // overflow.
    std::byte* at(std::uint64_t remote, std::uint64_t bytes) const {
      if (remote < address || bytes > length || remote - address > length - bytes) return nullptr;
      return memory.data() + (remote - address);
    }
  };

  const Entry* find(std::uint32_t key) {
    if (last_ != nullptr && last_key_ == key) return last_;
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    last_key_ = key;
    last_ = &found->second;
    return last_;
  }
  // Processes a packet of kind kRegions or kGone. Returns false if it is neither.
  bool take_in(Bytes packet, std::vector<Fd>& descriptors);
  // Number of regions announced so far, including removed regions.
  std::size_t heard() const { return heard_; }

 private:
  void add(const RegionEntry& said, const Fd& fd);
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::uint32_t last_key_ = 0;  // one-entry cache in front of entries_
  const Entry* last_ = nullptr;
  std::size_t heard_ = 0;
};

}  // namespace rkv::rdma::shm
