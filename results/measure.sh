#!/usr/bin/env bash
# Makes the record files of one GPU: results/measure.sh NAME [FOLDER], as in results/measure.sh h200.
# Each stage of points resumes where it stopped.  The frontier needs torch, tune optuna, accuracy scikit-learn, profile
# ncu, and the sanitizers compute-sanitizer on the PATH.  PYTHON is the interpreter: that of make, or else python3.
# STAGES (formerly PARTS) names some of the stages.  Exit status 1 if anything failed, after all the rest.
set -uo pipefail
name=${1:?usage: results/measure.sh NAME [FOLDER]} folder=${2:-results}
venv=$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/python
python=${PYTHON:-$([[ -x $venv ]] && echo "$venv" || echo python3)}
all="ceilings study transfers scaling lenet tune accuracy frontier sustained second_opinion again data hard profile sanitizers frontier_sanitizers"
status=0
stages=${STAGES:-${PARTS:-$all}}
for what in $stages; do
    [[ " $all " == *" $what "* ]] || { echo "there is no stage $what: $all" >&2; exit 2; }
done

failed() {  # failed WHAT: says so, and continues
    echo "$1" >&2
    status=1
}

stage() {  # stage FILE ARGUMENTS...: one record file
    local file=$1
    shift
    "$python" -m alexconv.run "$@" --resume --out "$folder/$name-$file.jsonl" || failed "$file: some points failed"
}

study() {
    stage alexnet --layers 1-5 --N 1,32,128 --rungs single,multi
    stage alexnet-um --layers 1-5 --N 1,32,128 --rungs um
    stage alexnet --layers 1 --N 1,32,128 --set COALESCED=0,1 \
        --rungs rla2m,rswbdla2m,rswmtla2m,swso,mk-sw-mt
}

ceilings() {
    "$python" -m alexconv.ceilings --out "$folder/$name-ceilings.jsonl" || failed "the ceilings were not measured"
}

transfers() {
    stage alexnet-transfers --layers 1-5 --N 128 --transfer all --rungs mcpy,rswmtla2m,mk-sw-mt-si-c-vec
}

scaling() {
    stage alexnet-scaling --layers 1-5 --N 1,32,128,256:2048:x2 --seconds 0.15 \
        --rungs rswmtla2m,mk-sw-mt-si-c-vec,exp-mk-sw-mt-si-c-vec
    stage alexnet-budget --layers 1-5 --N 128 --rungs mk,mk-sw-mt-si-c-vec --memory-budget 64MiB
}

lenet() {
    local year
    for year in 2018 2019 2023 2024; do
        stage "lenet-$year" --study "ece408-$year" --seconds 0.1
    done
    stage lenet-ablation --workload lenet-86-k7 --N 1000 --rungs tiled --set RESTRICT=0,1 --set UNROLL=0,1,2,3,4
    stage lenet-rungs --workload lenet-86-k7 --N 1000 --rungs tiles,shared,gemm --seconds 0.1
    stage lenet-rest --workload lenet-86-k7 --N 100,1000,5000,10000 \
        --rungs tiled-half2,tiled-channels-atomic,shared-core-tile --seconds 0.1
    stage lenet-on-alexnet --layers 1-5 --N 128 --rungs tiles,shared,gemm --seconds 0.1
}

frontier() {  # rungs and peers interleaved, in one process for each file
    stage frontier --layers 1-5 --N 1,128 --rungs direct-register,fused-unroll-matmul,igemm,mma,wgmma \
        --peers torch --no-baseline
    # For a single image: constants that a search found for each layer.
    local fp32="1=mma-split:TILE_PIXELS=96:TILE_FILTERS=32:CHANNELS=3:STAGES=3:SPLITS=1:WARPS=8:WARPS_DOWN=2,\
2=mma-split:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=3:SPLITS=1:WARPS=16:WARPS_DOWN=2,\
3=mma-split:TILE_PIXELS=40:TILE_FILTERS=64:CHANNELS=64:STAGES=4:SPLITS=4:WARPS=8:WARPS_DOWN=2,\
4=mma-split:TILE_PIXELS=40:TILE_FILTERS=64:CHANNELS=96:STAGES=2:SPLITS=4:WARPS=16:WARPS_DOWN=2,\
5=mma-split:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=3:SPLITS=4:WARPS=8:WARPS_DOWN=2"
    local tf32="1=mma-tf32,\
2=mma-scaled:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=4:SPLITS=1:WARPS=16:WARPS_DOWN=1,\
3=mma-scaled:TILE_PIXELS=40:TILE_FILTERS=64:CHANNELS=64:STAGES=3:SPLITS=4:WARPS=8:WARPS_DOWN=2,\
4=mma-scaled:TILE_PIXELS=40:TILE_FILTERS=48:CHANNELS=128:STAGES=4:SPLITS=3:WARPS=8:WARPS_DOWN=1,\
5=mma-scaled:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=4:SPLITS=4:WARPS=8:WARPS_DOWN=1"
    local fp16="1=mma-half:TILE_PIXELS=88:TILE_FILTERS=32:CHANNELS=3:STAGES=3:SPLITS=1:WARPS=8:WARPS_DOWN=1,\
2=mma-half:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=48:STAGES=4:SPLITS=1:WARPS=8:WARPS_DOWN=1,\
3=mma-half:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=128:STAGES=4:SPLITS=2:WARPS=8:WARPS_DOWN=1,\
4=mma-half:TILE_PIXELS=40:TILE_FILTERS=48:CHANNELS=64:STAGES=3:SPLITS=3:WARPS=8:WARPS_DOWN=1,\
5=mma-half:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=48:STAGES=4:SPLITS=4:WARPS=8:WARPS_DOWN=1"
    stage frontier-together --layers 1-5 --N 1 --rungs mma --together --peers torch --no-baseline
    for mix in "$fp32" "$tf32" "$fp16"; do
        stage frontier-together --layers 1-5 --N 1 --mix "$mix" --no-baseline
    done
    stage frontier-scaling --layers 1-5 --N 128,2048 --transfer pinned --peers torch --no-baseline \
        --rungs wgmma-split-resident,wgmma-split,wgmma-winograd,wgmma-window-scaled,wgmma-scaled,wgmma-window-half,wgmma-half
    stage frontier-pipeline --layers 1-5 --N 128 --rungs wgmma-split,wgmma-scaled --together --no-baseline \
        --transfer streamed:8,streamed:16
}

sustained() {  # the leading rungs and cuDNN once more without rests between runs, after 0.3 s under load
    stage frontier-sustained --layers 1-5 --N 128 --peers torch --no-baseline --sustained 0.3 --seconds 0.1 \
        --rungs wgmma-split-resident,wgmma-split,wgmma-winograd,wgmma-window-scaled,wgmma-scaled,wgmma-window-half,wgmma-half
}

second_opinion() {  # every plan of cuDNN's, by its own frontend
    local peers
    for peers in torch cudnn; do
        stage frontier-plans --layers 1-5 --N 128 --rungs wgmma --peers "$peers" --no-baseline --seconds 0.1
    done
}

again() {  # the rungs of the frontier beside cuDNN once more, on another card
    stage frontier-again --layers 1-5 --N 128 --rungs wgmma --peers torch --no-baseline --seconds 0.1
}

data() {  # the same points on other data: power, and so time, depend on it
    stage data --layers 1-5 --N 128 --data uniform,relu,zeros --peers torch --no-baseline --seconds 0.06 \
        --rungs wgmma-split,wgmma-winograd,wgmma-window-scaled,wgmma-half
}

hard() {  # errors on hard data, of conv2d and cuDNN, and the worst that a search finds for each rung
    local part
    for part in search conv2d; do
        "$python" scripts/hard_data.py "$part" --seconds 1.5 --out "$folder/$name-hard.jsonl" || failed "hard $part: a bound is broken"
    done
}

sweep() {  # sweep FILE N: the 2019 study's tile sizes
    "$python" -m alexconv.tune --workload lenet-70-k5 --N "$2" --rungs tiled,fused-unroll-matmul --constants TILE \
        --set RESTRICT=0 --set UNROLL=1 --resume --out "$folder/$name-$1.jsonl" || failed "$1: not finished"
}

tune() {
    sweep tune 1000
    sweep tune-10000 10000
}

accuracy() {
    "$python" -m alexconv.accuracy --rungs all --out "$folder/$name-accuracy.jsonl" || failed "accuracy: not as promised"
}

counters() {  # counters FILE ARGUMENTS...: what Nsight Compute counts
    local file=$1
    shift
    "$python" -m alexconv.profile "$@" --N 128 --out "$folder/$name-$file.jsonl" || failed "$file: not finished"
}

profile() {
    counters profile --rungs all --layers 2
    counters profile-alexnet --rungs single,multi --layers 1,3
    counters profile-frontier --rungs igemm-stream-k,mma-tf32,wgmma --layers 1-5
}

sanitize() {  # sanitize TOOL ARGUMENTS...: every rung once under one of compute-sanitizer's tools
    local tool=$1
    shift
    echo "== $tool: python -m alexconv.run --verify-only $*"
    compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 \
        "$python" -m alexconv.run --verify-only "$@" --out "$(mktemp -d)/records.jsonl" 2>&1 |
        grep -E "=========|^[0-9]+ points:" | tail -20 || failed "$tool: failed, or found something"
}

sanitizers() {
    {
        for tool in memcheck initcheck synccheck; do
            sanitize "$tool" --rungs single,multi,tiles,shared,gemm --layers 1-5 --N 1
        done
        sanitize racecheck --rungs single,multi,tiles,shared,gemm --workload lenet-86-k7 --N 1
        sanitize racecheck --rungs single,multi,tiles,shared,gemm --layers 3 --N 1
        exit $status
    } | tee "$folder/$name-sanitizers.txt" || status=1
}

frontier_sanitizers() {
    {
        for tool in memcheck initcheck synccheck; do
            sanitize "$tool" --rungs igemm,mma,wgmma --layers 1-3 --N 1
        done
        sanitize racecheck --rungs igemm,mma,wgmma --layers 1,3 --N 1
        exit $status
    } | tee "$folder/$name-frontier-sanitizers.txt" || status=1
}

for what in $stages; do "$what"; done
exit $status
