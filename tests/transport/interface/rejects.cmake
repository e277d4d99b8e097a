# SPDX-License-Identifier: Apache-2.0
# Passes when SOURCE compiles as it stands, and with MISUSE defined is refused for the reason on its first line:
#   // refused: REGULAR EXPRESSION
file(STRINGS ${SOURCE} reason LIMIT_COUNT 1 REGEX "^// refused: ")
string(REPLACE "// refused: " "" reason "${reason}")
if(NOT reason)
  message(FATAL_ERROR "${SOURCE} does not say why it is refused")
endif()
set(compile ${CMAKE_COMMAND} -E env LC_ALL=C ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I${INCLUDE})

execute_process(COMMAND ${compile} ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE complaint)
if(status)
  message(FATAL_ERROR "The right use does not compile:\n${complaint}")
endif()
execute_process(COMMAND ${compile} -DMISUSE ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE complaint)
if(NOT status)
  message(FATAL_ERROR "The misuse compiles")
elseif(NOT complaint MATCHES "${reason}")
  message(FATAL_ERROR "Refused, but not because of '${reason}':\n${complaint}")
endif()
