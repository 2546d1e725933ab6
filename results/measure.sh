#!/usr/bin/env bash
# Makes the record files of one GPU: results/measure.sh NAME [FOLDER], as in results/measure.sh h200.
# Each part resumes where it stopped; the sanitizers need compute-sanitizer on the PATH.
set -uo pipefail
name=$1 folder=${2:-results}
python=${PYTHON:-python3}

part() {  # part FILE ARGUMENTS...: one record file
    local file=$1
    shift
    "$python" -m alexconv.run "$@" --resume --out "$folder/$name-$file.jsonl" || echo "$file: some points failed" >&2
}

study() {
    part alexnet --layers 1-5 --N 1,32,128 --rungs single,multi
    part alexnet --layers 1 --N 1,32,128 --set COALESCED=0,1 \
        --rungs rla2m,rswbdla2m,rswmtla2m,swso,mk-sw-mt
}

transfers() {
    part alexnet-transfers --layers 1-5 --N 128 --transfer all --rungs mcpy,rswmtla2m,mk-sw-mt-si-c-vec
}

scaling() {
    part alexnet-scaling --layers 1-5 --N 1,32,128,256:2048:x2 --seconds 0.15 \
        --rungs rswmtla2m,mk-sw-mt-si-c-vec,exp-mk-sw-mt-si-c-vec
    part alexnet-budget --layers 1-5 --N 128 --rungs mk,mk-sw-mt-si-c-vec --memory-budget 64MiB
}

lenet() {
    local year
    for year in 2018 2019 2023 2024; do
        part "lenet-$year" --study "ece408-$year" --seconds 0.1
    done
    part lenet-ablation --workload lenet-86-k7 --N 1000 --rungs tiled --set RESTRICT=0,1 --set UNROLL=0,1,2,3,4
    part lenet-rungs --workload lenet-86-k7 --N 1000 --rungs tiles,shared,gemm --seconds 0.1
    part lenet-on-alexnet --layers 1-5 --N 128 --rungs tiles,shared,gemm --seconds 0.1
}

sanitizers() {
    local tool
    for tool in memcheck racecheck initcheck synccheck; do
        echo "== $tool"
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m alexconv.run --layers 1-5 --N 1 \
            --rungs "${RUNGS:-all}" --seconds 0 --no-baseline --out "$(mktemp -d)/records.jsonl" 2>&1 | grep -E "=========|points:" | tail -20
    done | tee "$folder/$name-sanitizers.txt"
}

for what in ${PARTS:-study transfers scaling lenet sanitizers}; do "$what"; done
