# The program around store and disk: options, lock, workers, acceptor. cxxopts is a lone header.
find_package(nlohmann_json CONFIG REQUIRED GLOBAL)  # GLOBAL: tests and programs link them too
find_package(spdlog CONFIG REQUIRED GLOBAL)
find_package(tomlplusplus CONFIG REQUIRED GLOBAL)

rkv_library(rkv_server_program
  SOURCES acceptor.cc backups.cc config_file.cc fetches.cc files.cc loads.cc lock_file.cc logging.cc long_requests.cc message_room.cc metrics.cc networks.cc offline.cc options.cc progress.cc
          request_handler.cc scans.cc send_pool.cc server.cc service_manager.cc stepper.cc sweeper.cc worker.cc worker_fetches.cc warm_up.cc worker_held.cc worker_loads.cc worker_long.cc
  PUBLIC rkv_server_core rkv_server_persistence rkv_rdma
  PRIVATE nlohmann_json::nlohmann_json spdlog::spdlog tomlplusplus::tomlplusplus)

rkv_program(kvserver SOURCES main.cc DEPS rkv_server_program)
