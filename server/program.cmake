# The program around store and disk: options, lock, workers, acceptor. cxxopts is a lone header.
find_package(nlohmann_json CONFIG REQUIRED GLOBAL)  # GLOBAL: tests and programs link them too
find_package(spdlog CONFIG REQUIRED GLOBAL)
find_package(tomlplusplus CONFIG REQUIRED GLOBAL)
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET GLOBAL libmicrohttpd)

# The status page is a part of the program.
set(page ${CMAKE_CURRENT_SOURCE_DIR}/page/status.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(READ ${page} RKV_STATUS_PAGE)
configure_file(status_page.cc.in ${CMAKE_CURRENT_BINARY_DIR}/status_page.cc @ONLY)
rkv_library(rkv_server_page SOURCES ${CMAKE_CURRENT_BINARY_DIR}/status_page.cc)

rkv_library(rkv_server_program
  SOURCES acceptor.cc background.cc backups.cc boot_number.cc config_file.cc exposition.cc fetches.cc files.cc http_server.cc loads.cc lock_file.cc logging.cc long_requests.cc offences.cc places.cc message_room.cc metrics.cc
          metrics_text.cc endpoints.cc monitor.cc networks.cc offline.cc options.cc process_facts.cc progress.cc request_handler.cc scans.cc send_pool.cc server.cc server_background.cc server_facts.cc
          service_manager.cc stats_json.cc status_json.cc stepper.cc stop_watch.cc sweeper.cc timings.cc variables.cc worker.cc worker_fetches.cc wall_clock.cc warm_up.cc worker_held.cc worker_loads.cc worker_long.cc worker_replies.cc
  PUBLIC rkv_server_core rkv_server_persistence rkv_rdma
  PRIVATE rkv_server_page nlohmann_json::nlohmann_json spdlog::spdlog tomlplusplus::tomlplusplus PkgConfig::microhttpd)

rkv_program(kvserver SOURCES main.cc DEPS rkv_server_program)
