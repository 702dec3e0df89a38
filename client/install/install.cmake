# Where files are installed. Components: library (what a program needs to run), dev (to build one);
# extras and extras_dev are the same of librkv_rdma_extras.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rkv)
# The prefix is found from where the file lies, so that an installed tree may be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix /${pkgconfig_dir} /)

# rkv_install_library(TARGET EXPORT COMPONENT DEV LAYERS folders... PC files...): a library of both
# kinds with its headers; what pkg-config and CMake read of it.
function(rkv_install_library library export component dev)
  cmake_parse_arguments(ARG "" "" "LAYERS;PC" ${ARGN})
  install(TARGETS ${library}_shared EXPORT ${export}SharedTargets
    LIBRARY COMPONENT ${component} NAMELINK_COMPONENT ${dev}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS ${library}_static EXPORT ${export}StaticTargets
    ARCHIVE COMPONENT ${dev}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  foreach(kind Shared Static)
    install(EXPORT ${export}${kind}Targets NAMESPACE rkv:: DESTINATION ${package_dir} COMPONENT ${dev})
  endforeach()
  foreach(layer IN LISTS ARG_LAYERS)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer}/include/rkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
      COMPONENT ${dev} FILES_MATCHING PATTERN "*.h"
      REGEX "/rdma/efa[.]h$" EXCLUDE)  # installed with its library: rdma/extras/efa
  endforeach()
  foreach(file IN LISTS ARG_PC)
    configure_file(${file}.in ${file} @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file} DESTINATION ${pkgconfig_dir} COMPONENT ${dev})
  endforeach()
endfunction()
rkv_install_library(rkv rkv library dev LAYERS common rdma client PC rkv.pc rkv-rdma.pc)
rkv_install_library(rkv_rdma_extras rkvRdmaExtras extras extras_dev LAYERS rdma/extras PC rkv-rdma-extras.pc)

configure_package_config_file(rkvConfig.cmake.in rkvConfig.cmake INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a new minor version may break programs.
write_basic_package_version_file(rkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rkvConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/rkvConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)
