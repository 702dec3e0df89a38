# Writes OUT, a header with the revision of SOURCE; leaves it alone when it says so already.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=*
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define RKV_GIT_REVISION \"${revision}\"\n")
