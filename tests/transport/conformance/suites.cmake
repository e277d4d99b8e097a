# SPDX-License-Identifier: Apache-2.0
# The suites of the conformance program, and what adds them to ctest for one scheme. A suite is SUITE_test.cpp in this
# folder plus one line below: file, suite's name in GoogleTest, label.
set(every_backend
  "sizes         sizes          conformance"
  "random        random_calls   conformance"
  "deadline      deadlines      conformance"
  "cancel        cancelling     conformance"
  "lent          lending        conformance"
  "close         closing        conformance"
  "reader        readers        conformance"
  "stop          stopping       conformance"
  "limits        limits         conformance"
  "shares        sharing        conformance"
  "answers       answers        conformance"
  "completions   completions    conformance"
  "blocking      blocking       conformance"
  "waiting       waiting        conformance"
  "listen        listening      conformance"
  "fork          forking        conformance"
  "timeline      timelines      conformance"
  "targets       targets        conformance"
  "tensors       described      conformance"
  "parts         parts          conformance"
  "request_parts request_parts  conformance"
  "ranges        ranges         conformance"
  "forwarding    forwarding     conformance"
  "pool          pooling        conformance"
  "shared_channel shared_channels conformance"
  "coro          awaited        conformance"
  "traces        tracing        conformance"
  "metadata      with_metadata  conformance"
  "interceptors  intercepting   conformance"
  "metrics       counting       conformance"
  "sessions      sessions       conformance,slow"
  "leak          leaks          leak,slow")
set(network_only
  "death         death          conformance"
  "reconnect     reconnecting   conformance"
  "security      security       conformance"
  "encryption    encrypting     conformance"
  "fault         faults         fault,slow")

# Schemes that need an RDMA device, and those whose handlers have their bytes on a GPU.
set(on_nic gdr gpu rdma)
set(on_gpu gdr)
# cuda:N: on that GPU; fake: with a stand-in for one (tests/transport/gpu/fake_gpu.hpp).
set(ACCEL_TEST_GPU "fake" CACHE STRING "GPU of the tests: fake, or cuda:0 where there is one")

# Files of suites that look at bytes, or at who owns them when.
set(of_bytes "sizes|random|deadline|cancel|lent|answers|completions|parts|request_parts|ranges|forwarding|reconnect")

set(seconds 600)  # for hangs
set(test_environment "ACCEL_TEST_TIME_FACTOR=${ACCEL_TEST_TIME_FACTOR};${ACCEL_TEST_SANITIZER_ENVIRONMENT}")

function(accel_conformance_entry line scheme)
  string(REGEX REPLACE " +" ";" fields "${line}")
  list(GET fields 0 file)
  list(GET fields 1 suite)
  list(GET fields 2 labels)
  string(REPLACE "," ";" labels "${labels}")
  set(name conformance.${scheme}.${file})
  set(launcher "")
  if(scheme IN_LIST on_nic)
    accel_nic_launcher(launcher ${name})
  endif()
  add_test(NAME ${name}
    COMMAND ${launcher} $<TARGET_FILE:conformance_tests> --gtest_filter=backends/${suite}.*/${scheme})
  set(memory host)
  if(scheme IN_LIST on_gpu)
    set(memory ${ACCEL_TEST_GPU})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${seconds} SKIP_RETURN_CODE 77
    ENVIRONMENT "ACCEL_TEST_MEMORY=${memory};${test_environment}")
  if("slow" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  # It waits for nothing.
  if("leak" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()

  # Many seeds.
  if(file STREQUAL random)
    if(scheme IN_LIST on_nic)
      accel_nic_launcher(launcher ${name}.seeds)
    endif()
    add_test(NAME ${name}.seeds
      COMMAND ${launcher} $<TARGET_FILE:conformance_tests> --gtest_filter=backends/${suite}.each_*/${scheme})
    set_tests_properties(${name}.seeds PROPERTIES LABELS "${labels};slow" TIMEOUT 3600 SKIP_RETURN_CODE 77
      ENVIRONMENT "ACCEL_TEST_SEEDS=200;ACCEL_TEST_MEMORY=${memory};${test_environment}")
    accel_weekly(${name}.seeds)
  endif()

  # AddressSanitizer looks at the transports whose memory and bytes differ, ThreadSanitizer at one of each kind: in one
  # process, by shared memory, by sockets, by a device. What takes long, and faults, are counted in the release build.
  if("slow" IN_LIST labels)
    accel_weekly(${name} BUILD sanitized)
  endif()
  if(scheme MATCHES "^(gdr|gpu|zmq)$")
    accel_weekly(${name} BUILD thread)
  endif()
  if(scheme STREQUAL gdr OR (scheme MATCHES "^(local|gpu|zmq)$" AND NOT file MATCHES "^(${of_bytes})$"))
    accel_weekly(${name} BUILD address)
  endif()
endfunction()

# accel_conformance(SCHEME): one test for each suite that SCHEME joins.
set(ACCEL_CONFORMANCE_FOLDER ${CMAKE_CURRENT_LIST_DIR})
function(accel_conformance scheme)
  if(scheme IN_LIST on_nic)
    accel_nic_launcher(launcher any)
    if(launcher_MISSING)
      message(STATUS "conformance over ${scheme} is built but not run: ${launcher_MISSING}")
      return()
    endif()
  endif()
  set(lines ${every_backend})
  file(STRINGS ${ACCEL_CONFORMANCE_FOLDER}/backends.def row REGEX "^ACCEL_CONFORMANCE_BACKEND\\(${scheme}[,)]")
  if(row MATCHES "network = true")
    list(APPEND lines ${network_only})
  endif()
  # What gpu adds to rdma is on the way of a call. Faults of the control plane are not, nor is how long sessions take to
  # come and go. (Faults of the device: rdma_tests.gpu.) Kernels refuse requests in parts.
  if(scheme STREQUAL gpu)
    list(FILTER lines EXCLUDE REGEX "^(fault|request_parts)")
    if(ACCEL_SANITIZE)
      list(FILTER lines EXCLUDE REGEX "slow$|^death")
    endif()
  endif()
  # gdr is rdma with the bytes elsewhere, and its faults of the control plane are rdma's. Sanitizers see gdr with the
  # suites that look at bytes.
  if(scheme STREQUAL gdr)
    list(FILTER lines EXCLUDE REGEX "^fault")
  endif()
  if(scheme STREQUAL gdr AND ACCEL_SANITIZE)
    list(FILTER lines INCLUDE REGEX
      "^(sizes|random|deadline|lent|answers|parts|request_parts|ranges|forwarding|death) ")
  endif()
  # Its peers have no keys, and a proxy cannot stand between them.
  if(scheme STREQUAL shm)
    list(FILTER lines EXCLUDE REGEX "^(security|encryption|fault)")
  endif()
  foreach(line IN LISTS lines)
    accel_conformance_entry("${line}" ${scheme})
  endforeach()
endfunction()
