# Debian packages (CPack): rkv-server, rkv-tools; librkv0.1, librkv-dev; librkv-rdma-extras0.1,
# librkv-rdma-extras-dev; python3-rkv, if the Python package is built. `./run package` makes them.

# The maintainer. The project has no address for mail, and nothing in the domain .invalid has.
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "The rkv authors <rkv@rkv.invalid>")
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rkv)
set(CPACK_PACKAGE_VENDOR "The rkv authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/as_debian_has_it.cmake)
set(CPACK_COMPONENTS_ALL server tools library dev extras extras_dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)  # a package for each

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# The description of a package: a line of its own, then what they share.
set(shared "rkv keeps keys and values in memory that clients read by RDMA READ, or
over shared memory on the same host, without waking the server.
Everything is kept on disk as well.")
configure_file(debian/changelog.in changelog @ONLY)
function(rkv_package component name section summary)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${shared}" PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    RENAME copyright COMPONENT ${component})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/changelog DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    COMPONENT ${component})
endfunction()
set(soversion ${RKV_ABI_VERSION})
rkv_package(server rkv-server database "key-value store with one-sided RDMA reads: server")
rkv_package(tools rkv-tools database "key-value store with one-sided RDMA reads: client and benchmark")
rkv_package(library librkv${soversion} libs "key-value store with one-sided RDMA reads: library")
rkv_package(dev librkv-dev libdevel "key-value store with one-sided RDMA reads: development files")
rkv_package(extras librkv-rdma-extras${soversion} libs "verbs library of rkv: channels, datagrams, messages")
rkv_package(extras_dev librkv-rdma-extras-dev libdevel
  "verbs library of rkv: channels, datagrams, messages, development files")

# Providers are loaded at run time: no library names them.
foreach(component SERVER TOOLS LIBRARY)
  set(CPACK_DEBIAN_${component}_PACKAGE_RECOMMENDS ibverbs-providers)
endforeach()
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/postinst ${CMAKE_CURRENT_SOURCE_DIR}/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/debian/postrm)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
foreach(component library extras)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/debian/triggers)
  install(FILES debian/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
    RENAME ${CPACK_DEBIAN_${upper}_PACKAGE_NAME} COMPONENT ${component})
endforeach()
# dpkg-shlibdeps knows no package of librkv while it is made here.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/client/install)
set(CPACK_DEBIAN_EXTRAS_PACKAGE_DEPENDS "librkv${soversion} (= ${PROJECT_VERSION})")
# What the static library and the headers of rkv::rdma need; nothing in it is loaded.
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "librkv${soversion} (= ${PROJECT_VERSION}), libibverbs-dev, librdmacm-dev, libxxhash-dev, libssl-dev, libfmt-dev")
set(CPACK_DEBIAN_EXTRAS_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_EXTRAS_DEV_PACKAGE_DEPENDS
  "librkv-rdma-extras${soversion} (= ${PROJECT_VERSION}), librkv-dev (= ${PROJECT_VERSION})")

if(TARGET rkv_python_shared)
  list(APPEND CPACK_COMPONENTS_ALL python)
  rkv_package(python python3-rkv python "key-value store with one-sided RDMA reads: client for Python 3")
  # As dh_python3 would say it: the extension is for this minor version of Python alone.
  find_package(Python 3.9 COMPONENTS Interpreter)
  math(EXPR next "${Python_VERSION_MINOR} + 1")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "librkv${soversion} (= ${PROJECT_VERSION}), \
python3 (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}~), python3 (<< ${Python_VERSION_MAJOR}.${next})")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS python3-numpy)
  foreach(script postinst prerm)
    configure_file(debian/python3-rkv.${script} python3-rkv/${script} COPYONLY)
    list(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/python3-rkv/${script})
  endforeach()
endif()

include(CPack)
