# What src/test/native/build and emulation/build share: the headers, the compiler's options, and what is compiled when.
# They set here (their folder), root, force and sanitize.

native=$root/target/native/nvidia
if [[ ! -f $native/nccl/include/nccl.h || ! -f $native/cu13/include/cuda_runtime_api.h ]]; then
  if [[ ! -x $root/scripts/fetch-native ]]; then
    echo "${here#"$root/"}/build: target/native has no headers, and scripts/fetch-native is missing" >&2
    exit 1
  fi
  "$root/scripts/fetch-native"
fi

flags=(-std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fvisibility=hidden -fPIC -pthread
  -I "$root/src/test/native" -isystem "$native/nccl/include" -isystem "$native/cu13/include")
# CUDA's headers include <nv/target>, which some wheels keep in a subdirectory.
[[ -d $native/cu13/include/cccl ]] && flags+=(-isystem "$native/cu13/include/cccl")
[[ -n $sanitize ]] && flags+=("-fsanitize=$sanitize" -fno-omit-frame-pointer)
[[ $sanitize == *thread* ]] && flags+=(-Wno-tsan) # gcc warns of fences, which it does not follow

# Whether the file is missing or older than one of its sources.
stale() {
  local made=$1
  shift
  set -- "$@" "$here/build" "$root/src/test/native/compile.sh"
  [[ -n $force || ! -f $made || -n $(find -H "$@" -newer "$made" -print -quit) ]]
}

# Compiles to a temporary name and renames: a library that a running JVM has mapped must not be overwritten.
compile() {
  local made=$1
  shift
  gcc "${flags[@]}" "$@" -o "$made.$$"
  mv "$made.$$" "$made"
}

# Compiles a self-test, given its source, its program and the libraries that it is linked to. Sources that it includes
# are in one of these, too.
compile_selftest() {
  local source=$1 test=$2
  shift 2
  if stale "$test" "$source" "${source/_2_28/}" "$root"/src/test/native/selftest*.h "$here"/selftest*.h "$@"; then
    compile "$test" "$source" ${older[0]+"${older[0]}"} -rdynamic "$@" -Wl,-rpath,'$ORIGIN' -lm
  fi
}
