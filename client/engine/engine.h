// The client of one server: the parts that share its session. client/api and client/cluster use it.
//
// Thread safety: none. After create() only functions that return text or values allocate. The
// buffers of large values are allocated when they are first needed.
#pragma once

#include <memory>
#include <string>

#include "client/engine/connector.h"
#include "client/engine/counter_ops.h"
#include "client/engine/getter.h"
#include "client/engine/pipeline_buffers.h"
#include "client/engine/requester.h"
#include "client/engine/session.h"

namespace rkv::client {

struct Engine {
  static Result<std::unique_ptr<Engine>> create(const ClientOptions& options,
                                                std::shared_ptr<rdma::Transport> transport,
                                                const Clock* clock, std::string* refusal);
  // Like create(), without connecting: the first operation connects. `credentials` are used instead
  // of the options' secret; null: the client has no user. `policy`, which may be null, must outlive
  // the engine. `home`: shared by the engines of one client; null: the engine gets its own.
  static Result<std::unique_ptr<Engine>> create_unconnected(
      const ClientOptions& options, const Credentials* credentials,
      std::shared_ptr<rdma::Transport> transport, const Clock* clock, ConnectPolicy* policy,
      std::shared_ptr<Home> home = nullptr);
  // Size of the arena of an engine with these options.
  static std::size_t arena_bytes(const ClientOptions& options) {
    return Arena::region_bytes(Getter::gets_of(options), options.requests_in_flight);
  }

  Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
         const Clock& clock, Arena arena, std::optional<Credentials> credentials,
         ConnectPolicy* policy, std::shared_ptr<Home> home);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ClientStats stats() const;

  Session session;
  Connector connector;
  Requester requester;
  Getter getter;
  CounterOps counters;
  Lender<GetBuffers> get_buffers;
  Lender<WriteBuffers> write_buffers;
  std::string description;  // of the transport: one line for people
};

}  // namespace rkv::client
