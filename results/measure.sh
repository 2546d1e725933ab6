#!/usr/bin/env bash
# Makes the record files of one GPU: results/measure.sh NAME [FOLDER], as in results/measure.sh h200.
#
# STAGES names some of the stages, or parts of them, each of at most eight files and ten minutes:
#
#   part-1   8 files, 6 min  the main job from an empty cache, the AlexNet study, ceilings, errors, a course's kernel
#   part-2   8 files, 4 min  counters, with references of large batches on the CPU; microbenchmarks
#   part-3   4 files, 5 min  batch sizes, the leading rungs under load, on other data
#   part-4   4 files, 7 min  the frontier with cuDNN
#   part-5   8 files, 10 min the LeNet-style studies
#   part-6   7 files, 5 min  gradients and cuDNN's
#   part-7   5 files, 9 min  Conv2d in graphs and torch's cuDNN in fp32 and tf32; calls, builds for every shape
#   part-8   2 files, 9 min  the same in fp16; layers of networks
#   part-9   1 file,  7 min  whole networks: torchvision's AlexNet
#   part-10  1 file,  6 min  the other AlexNets
#   part-11  1 file,  8 min  torch.compile's
#   part-12  4 files, 10 min grouped layers, layers bound by memory
#   part-13  4 files, 7 min  a public board; searches of cuDNN's engines and knobs, cuBLASLt and Triton
#   part-14  4 files, 10 min patched networks; choices for random layers; kernels on a time axis
#   part-15  6 files, 8 min  training steps, networks that train
#   part-16  1 file,  6 min  all networks with every stage checked, not timed
#
# All of them are the default.  The minutes are of nine H200s whose hosts had 16 cores for each card
# (results/README.md); on another host four of the first six took two thirds as long.
# No card has had all in one go yet.  Each stage prints its time.
# So that README and docs/frontier.md are of one card: STAGES="main_job ceilings frontier sustained peers data timelines",
# 15 min where the host is quick.
# For another card, the part `short` has the files of results/h100: 8 in 7 min, in a folder NAME.
#
# Any can be rerun: points resume where they stopped, and a file that is made as a whole is kept once it is finished
# (.FILE.unfinished marks an unfinished one; remove FILE to make it again).  In an empty FOLDER, all points are measured
# again.  Not in the parts: again and bits (on another card), split_k, cluster (two GPUs), host (no GPU), tune_10000,
# patched_more, sanitizers, frontier_sanitizers, more_sanitizers.
#
# The frontier, networks, gradients and library need torch (patched networks: torchvision), peers
# cudnn-frontend and triton, tune optuna, accuracy scikit-learn, counters ncu, and the sanitizers
# compute-sanitizer on the PATH.  PYTHON is the interpreter: by default make's, else python3.  A failure does not stop the
# other stages; the exit status is then 1.
set -uo pipefail
name=${1:?usage: results/measure.sh NAME [FOLDER]} folder=${2:-results}
here=$(dirname "${BASH_SOURCE[0]}")/..
[[ $here == results/.. ]] && here=.
python=${PYTHON:-$([[ -x $here/.venv/bin/python ]] && echo "$here/.venv/bin/python" || echo python3)}
declare -A parts=(
    [part-1]="main_job ceilings study transfers errors course"
    [part-2]="counted microbenchmarks"
    [part-3]="scaling sustained data"
    [part-4]="frontier"
    [part-5]="lenet tune"
    [part-6]="gradients"
    [part-7]="library_calls library_fp32 library_tf32 dynamic"
    [part-8]="library_fp16 networks"
    [part-9]="whole_torchvision"
    [part-10]="whole_others"
    [part-11]="whole_compiled"
    [part-12]="groups memory_bound"
    [part-13]="board peers"
    [part-14]="patched choices timelines"
    [part-15]="training"
    [part-16]="whole_checks"
    [short]="short_ladder short_frontier short_library"
)
default=$(echo part-{1..16})
others="references counters lenet_counters hard accuracy ${parts[short]} again bits split_k cluster host tune_10000"
others+=" patched_more sanitizers frontier_sanitizers more_sanitizers"
status=0
stages=""
for what in ${STAGES:-$default}; do stages+=" ${parts[$what]:-$what}"; done
all=$(for what in $default; do echo -n "${parts[$what]} "; done)$others
for what in $stages; do
    [[ " $all " == *" $what "* ]] || { echo "there is no stage $what: $all" >&2; exit 2; }
done

failed() {  # failed WHAT: reports it, and continues
    echo "$1" >&2
    status=1
}

unpack() {  # unpack FILE: a compressed record file cannot be continued
    [[ ! -e $folder/$1.jsonl.xz ]] || unxz "$folder/$1.jsonl.xz" || failed "$1: not unpacked"
}

points() {  # points FILE COMMAND...: one record file, to which a command adds the points that it lacks
    local file=$1
    shift
    mkdir -p "$(dirname "$folder/$file")"
    unpack "$file"
    "$python" "$@" --resume --out "$folder/$file.jsonl" || failed "$file: some points failed"
}

stage() {  # stage FILE ARGUMENTS...: points of alexconv.run
    points "$1" -m alexconv.run "${@:2}"
}

whole() {  # whole FILE WHAT COMMAND...: a file made as a whole, by a command that takes its name as the last argument
    local file=$folder/$1.jsonl what=$2 unfinished=$folder/$(dirname "$1")/.$(basename "$1").unfinished
    shift 2
    [[ (-s $file || -s $file.xz) && ! -e $unfinished ]] && return
    mkdir -p "$(dirname "$file")"
    rm -f "$file" "$file.xz"
    touch "$unfinished"
    if "$python" "$@" "$file"; then rm "$unfinished"; else failed "$what"; fi
}

beside() {  # beside WHAT STAGE...: one stage at the same time as others, one after the other
    ("$1"; exit $status) &
    local first=$! what
    for what in "${@:2}"; do "$what"; done
    wait $first || status=1
}

main_job() {  # every rung on every layer, N=128, as `make study` runs it; from an empty cache if it is the first
    stage "$name-main-job" --layers 1-5 --N 128
}

references() {  # of large batches, on the CPU, so that no other stage waits for them
    local of
    for of in "alexnet 2048" "lenet-72-k7 10000" "lenet-70-k5 10000" "lenet-86-k7 10000"; do
        nice "$python" -m alexconv.reference --workload "${of% *}" --N "${of#* }" || failed "references of $of: not made"
    done
}

ceilings() {
    whole "$name-ceilings" "the ceilings were not measured" -m alexconv.ceilings --out
}

study() {
    stage "$name-alexnet" --layers 1-5 --N 1,32 --rungs single,multi --seconds 0.05  # N=128: the main job
    stage "$name-alexnet-um" --layers 1-5 --N 1,32,128 --rungs um --seconds 0.05
    stage "$name-alexnet" --layers 1 --N 1,32,128 --set COALESCED=0,1 --seconds 0.05 \
        --rungs rla2m,rswbdla2m,rswmtla2m,swso,mk-sw-mt
}

transfers() {
    stage "$name-alexnet-transfers" --layers 1,3,5 --N 128 --transfer all --seconds 0.05 \
        --rungs mcpy,rswmtla2m,mk-sw-mt-si-c-vec
}

scaling() {  # tables 10 and 11 of the AlexNet study
    stage "$name-alexnet-scaling" --layers 1-5 --N 1,32,128,256:2048:x2 --seconds 0.03 \
        --rungs rswmtla2m,exp-mk-sw-mt-si-c-vec
    stage "$name-alexnet-budget" --layers 1-5 --N 128 --rungs mk,mk-sw-mt-si-c-vec --seconds 0.05 \
        --memory-budget 64MiB
}

lenet() {  # each study at its own batch sizes
    local year
    for year in 2018 2019 2023 2024; do
        stage "$name-lenet-$year" --study "ece408-$year" --N 100,1000,$([[ $year == 2023 ]] && echo 5000 || echo 10000) \
            --seconds 0.05
    done
    stage "$name-lenet-ablation" --workload lenet-86-k7 --N 1000 --rungs tiled --set RESTRICT=0,1 --set UNROLL=0,1,2,3,4 \
        --seconds 0.05
    stage "$name-lenet-rungs" --workload lenet-86-k7 --N 1000 --rungs tiles,shared,gemm --seconds 0.05
    stage "$name-lenet-rest" --workload lenet-86-k7 --N 100,1000,10000 \
        --rungs tiled-half2,tiled-channels-atomic,shared-core-tile --seconds 0.05
}

same_contract=torch-nchw-fp32,torch-nchw-tf32,torch-nhwc-fp16,torch-nhwc-tf32  # layouts of the rungs, and tf32's faster one
fastest_of_cudnn=torch-nchw-fp32,torch-nhwc-tf32,torch-nhwc-fp16  # cuDNN's faster layouts, with many images
leaders=wgmma-split-resident,wgmma-split,wgmma-winograd,wgmma-window-scaled,wgmma-scaled,wgmma-window-half,wgmma-half,\
wgmma-half-split-k

frontier() {  # rungs and peers interleaved, in one process for each file
    stage "$name-frontier" --layers 1-5 --N 1,128 --rungs direct-register,fused-unroll-matmul,family:igemm,mma,wgmma \
        --peers torch --no-baseline --seconds 0.06
    # For a single image: constants from a search, for each layer.
    local fp32="1=wgmma-split-resident:TILE_FILTERS=96:STAGES=9:GRID_BLOCKS=132,\
2=mma-split:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=3:SPLITS=1:WARPS=16:WARPS_DOWN=2,\
3=mma-split:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=128:STAGES=3:SPLITS=2:WARPS=8:WARPS_DOWN=2:CLUSTER=2,\
4=mma-split:TILE_PIXELS=40:TILE_FILTERS=64:CHANNELS=96:STAGES=2:SPLITS=4:WARPS=16:WARPS_DOWN=2,\
5=mma-split:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=3:SPLITS=4:WARPS=8:WARPS_DOWN=2"
    local tf32="1=mma-tf32:TILE_PIXELS=48:TILE_FILTERS=48:CHANNELS=3:STAGES=3:SPLITS=1:WARPS=8:WARPS_DOWN=1,\
2=mma-scaled:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=4:SPLITS=2:WARPS=16:WARPS_DOWN=1,\
3=mma-scaled:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=128:STAGES=4:SPLITS=2:WARPS=8:WARPS_DOWN=1:CLUSTER=2,\
4=mma-scaled:TILE_PIXELS=40:TILE_FILTERS=48:CHANNELS=128:STAGES=4:SPLITS=3:WARPS=8:WARPS_DOWN=1,\
5=mma-scaled:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=96:STAGES=4:SPLITS=4:WARPS=8:WARPS_DOWN=1"
    local fp16="1=mma-half:TILE_PIXELS=88:TILE_FILTERS=32:CHANNELS=3:STAGES=3:SPLITS=1:WARPS=8:WARPS_DOWN=1,\
2=mma-half:TILE_PIXELS=48:TILE_FILTERS=32:CHANNELS=48:STAGES=4:SPLITS=1:WARPS=8:WARPS_DOWN=1,\
3=mma-half:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=64:STAGES=4:SPLITS=2:WARPS=8:WARPS_DOWN=1:CLUSTER=2,\
4=mma-half:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=96:STAGES=4:SPLITS=2:WARPS=8:WARPS_DOWN=1:CLUSTER=2,\
5=mma-half:TILE_PIXELS=40:TILE_FILTERS=32:CHANNELS=192:STAGES=4:SPLITS=2:WARPS=8:WARPS_DOWN=1:CLUSTER=2"
    stage "$name-frontier-together" --layers 1-5 --N 1 --rungs mma --together --peers torch --no-baseline
    for mix in "$fp32" "$tf32" "$fp16"; do
        stage "$name-frontier-together" --layers 1-5 --N 1 --mix "$mix" --no-baseline
    done
    # At N=2048 rungs alone: cuDNN's benchmark, which runs every engine, takes up to 40 s per layer there.
    stage "$name-frontier-scaling" --layers 1-5 --N 128,512 --transfer pinned --no-baseline --seconds 0.03 \
        --peers "$fastest_of_cudnn" --rungs "$leaders"
    stage "$name-frontier-scaling" --layers 1-5 --N 2048 --transfer pinned --no-baseline --seconds 0.03 \
        --rungs "$leaders"
    stage "$name-frontier-pipeline" --layers 1-5 --N 128 --rungs wgmma-split,wgmma-scaled --together --no-baseline \
        --transfer streamed:8,streamed:16
}

sustained() {  # the leading rungs and cuDNN once more without rests between runs, after 0.3 s under load
    stage "$name-frontier-sustained" --layers 1-5 --N 128 --no-baseline --sustained 0.3 --seconds 0.03 \
        --peers "$same_contract" --rungs "$leaders"
}

board() {  # a public board's benchmarks, the ranked one first, its rule, and large filters
    local classes=fp32,fp32-tile,tf32 cudnn=torch-nchw-fp32,torch-nhwc-tf32 at
    for at in "4 1" "1,2 4" "3 2"; do
        stage "board/$name-board" --workload conv2d-v2 --layers "${at% *}" --N "${at#* }" --rungs auto --precision "$classes" \
            --peers "$cudnn,torch-nchw-tf32" --no-baseline --seconds 0.05
    done
    stage "board/$name-board" --workload conv2d-v2 --layers 4 --N 1 --rungs wgmma-split --no-baseline --seconds 0.05 \
        --set TILE_PIXELS=128 --set TILE_FILTERS=128 --set STAGES=3
    stage "board/$name-large" --workload large-filters --layers 1-5 --N 8 --rungs auto --precision "$classes" --peers "$cudnn" \
        --no-baseline --seconds 0.03
    whole "board/$name-rule" "the board's rule: not finished" "$here/scripts/measure/board_rule.py" --out
}

peers() {  # torch's choice and the best of all of cuDNN's engines and knobs, fused and gradients too; cuBLASLt, Triton
    local peer file="peers/$name" layouts=torch-nhwc-fp16,torch-nchw-fp32,torch-nhwc-tf32,torch-nchw-tf32
    local own=wgmma-half,wgmma-window-half,wgmma-split,wgmma-split-resident,wgmma-scaled,wgmma-window-scaled
    for peer in "$layouts" cudnn-nhwc-fp16 cudnn-nchw-fp32,cudnn-nhwc-tf32 cudnn-nchw-fp32-strict cublaslt triton; do
        stage "$file" --layers 1-5 --N 128 --rungs "$own" --peers "$peer" --no-baseline --seconds 0.03
    done
    for peer in torch-nhwc-fp16 cudnn-nhwc-fp16; do
        stage "$file" --workload alexnet-fused --layers 2,3 --N 128 --rungs "$own" --precision fp16 --peers "$peer" \
            --no-baseline --seconds 0.03
        stage "$file" --layers 2,3 --N 1,32 --rungs auto --precision fp16 --peers "$peer" --no-baseline --seconds 0.03
        stage "$file" --layers 3 --N 128 --direction dgrad,wgrad --rungs auto --precision fp16 --peers "$peer" --no-baseline \
            --seconds 0.03
    done
}

wide_gradients=dgrad-wgmma-split,dgrad-wgmma-scaled,dgrad-wgmma-half,wgrad-wgmma-split,wgrad-wgmma-scaled,wgrad-wgmma-half
first_gradients=wgrad-wgmma-half-blocked,wgrad-wgmma-split,wgrad-wgmma-scaled,dgrad-phases-wgmma-half,dgrad-phases-wgmma-scaled,\
dgrad-phases-wgmma-split
narrow_gradients=wgrad-igemm,wgrad-mma-tf32,wgrad-mma-split,wgrad-mma-half

gradients() {  # rungs of dgrad and wgrad with cuDNN's gradients; other batch sizes and constants
    local cudnn=torch-nchw-fp32,torch-nhwc-fp32,torch-nchw-fp32-deterministic,torch-nchw-tf32,torch-nhwc-tf32
    cudnn+=,torch-nhwc-fp16,torch-nhwc-fp16-deterministic
    local timed=(--no-baseline --seconds 0.05)
    stage "gradients/$name" --layers 1-5 --N 128 --rungs "$narrow_gradients" --peers "$cudnn" "${timed[@]}"
    stage "gradients/$name" --layers 2-5 --N 128 --rungs "$wide_gradients" --peers "$cudnn" "${timed[@]}"
    stage "gradients/$name" --layers 1 --N 128 --rungs "$first_gradients" --peers "$cudnn" "${timed[@]}"
    stage "gradients/$name" --layers 3 --N 128 --rungs dgrad-mma-split,dgrad-mma-half "${timed[@]}"
    stage "gradients/$name" --layers 1,3 --N 128 "${timed[@]}" \
        --rungs wgrad-direct,wgrad-partial,wgrad-atomic,wgrad-shared,wgrad-matmul
    stage "gradients/$name" --layers 1,3 --N 128 "${timed[@]}" --rungs dgrad-phases,dgrad-igemm,dgrad-direct,dgrad-scatter
    local others="gradients/others/$name" images
    local shared=wgrad-wgmma-half,wgrad-wgmma-scaled,wgrad-wgmma-half-blocked
    stage "$others" --layers 2-5 --N 1,32 --rungs wgrad-wgmma-split "${timed[@]}"
    stage "$others" --layers 3,4 --N 1,32 --rungs wgrad-wgmma-half --peers torch-nhwc-fp16 "${timed[@]}"
    stage "$others-clusters" --layers 1-5 --N 1,32,128 --rungs "$shared" --set CLUSTER=1,2 "${timed[@]}"
    stage "$others" --layers 2-5 --N 128 --rungs wgrad-wgmma-split --set CLUSTER=2 "${timed[@]}"
    stage "$others" --layers 3 --N 128 --rungs wgrad-wgmma-half --set TILE_PIXELS=32 --set STAGES=4,6,8 "${timed[@]}"
    stage "$others" --layers 3,4 --N 128 --rungs wgrad-wgmma-half --set TILE_PIXELS=128 --set STAGES=2 "${timed[@]}"
    local grouped=(--N 32 --direction dgrad --peers torch-nchw-fp32 "${timed[@]}")
    stage "$others-dgrad" --workload depthwise --layers 1,2,20 --rungs dgrad-phases,dgrad-igemm,dgrad-wgmma-split \
        "${grouped[@]}"
    stage "$others-dgrad" --workload resnext-regnet --layers 2,6 --rungs dgrad-phases,dgrad-igemm "${grouped[@]}"
    for images in 128 1; do
        whole "$others-counters-$images" "counters of gradients: not finished" -m alexconv.profile --layers 2-5 --N $images \
            --rungs wgrad-wgmma-half,wgrad-wgmma-split,wgrad-wgmma-scaled,dgrad-wgmma-half-whole,dgrad-wgmma-split,\
dgrad-wgmma-scaled --out
    done
}

bits() {  # gradients on another card: the same bits as on the first
    local file="gradients/others/$name-bits" timed=(--no-baseline --seconds 0.01)
    stage "$file" --layers 1-5 --N 128 --rungs "$narrow_gradients" "${timed[@]}"
    stage "$file" --layers 2-5 --N 128 --rungs "$wide_gradients" "${timed[@]}"
    stage "$file" --layers 1 --N 128 --rungs "$first_gradients" "${timed[@]}"
    stage "$file" --layers 3 --N 128 --rungs dgrad-mma-split,dgrad-mma-half "${timed[@]}"
    stage "$file" --layers 1,3 --N 128 --rungs wgrad-direct,wgrad-partial,wgrad-shared,wgrad-matmul "${timed[@]}"
}

split_k() {  # split-K through global memory and in clusters, one image
    stage "clusters/$name-split-k" --layers 3-5 --N 1 --rungs mma-half,mma-tf32,mma-scaled,mma-split --set CLUSTER=1,2,4 \
        --no-baseline --seconds 0.05
}

training() {  # convolutions of a step through the library and by cuDNN, and networks that train
    local bench=("$here/scripts/measure/library_bench.py" --parts training) what
    whole "training/$name-alexnet" "training: not finished" "${bench[@]}" --seconds 200 --workload alexnet \
        --N 128,32,1 --precision fp16,tf32,fp32 --out
    whole "training/$name-convnet-layers" "training: not finished" "${bench[@]}" --workload convnet-layers --N 128 \
        --precision fp32 --contenders alexconv,cudnn --out
    for what in "alexnet-overfeat 1-10 128 80" "googlenet 18-66 128 90" "vgg 11-17 64 90"; do
        set -- $what
        whole "training/$name-convnets-$1" "training, $1: not finished" "${bench[@]}" --workload convnet-benchmarks \
            --layers "$2" --N "$3" --seconds "$4" --precision fp32 --contenders alexconv,cudnn --out
    done
    whole "training/$name-digits" "digits: not as promised" "$here/examples/train_network.py" --model digits \
        --precision fp32,fp16 --out
    whole "training/$name-resnet18" "resnet18: not as promised" "$here/examples/train_network.py" --model resnet18 \
        --precision fp16,fp32 --N 64 --layouts nhwc,nchw --out
}

torch_networks=torch-nchw,torch-nhwc

network() {  # network PRECISIONS SCHEDULES BATCHES NETWORKS [PEERS]: whole networks, with energy
    local peers=()
    [[ -z ${5:-} ]] || peers=(--peers "$5")
    stage "$name-networks-whole" --network "$4" --precision "$1" --schedule "$2" --N "$3" --verbose "${peers[@]}" \
        --seconds 0.2 --sustained 0.3
}

whole_torchvision() {  # schedules of torchvision's AlexNet, and torch's and cuDNN's networks
    network fp16 all 1,128 alexnet-torchvision "$torch_networks"
    network fp16 dependent 1,128 alexnet-torchvision cudnn-nchw,cudnn-nhwc
    network fp16 dependent 8,32,1024 alexnet-torchvision "$torch_networks"
    network fp32,tf32 dependent,pooled,terms 1,32,128,1024 alexnet-torchvision "$torch_networks"
}

whole_others() {  # AlexNet of 2012 and the AlexNet study's
    local both=alexnet-2012,alexnet-one-tower
    network fp16 dependent 1,32,128 "$both" "$torch_networks"
    network fp32,tf32 dependent,pooled,terms 1,32,128 "$both" "$torch_networks"
    network fp16 epilogue 1,32,128 alexnet-2012
}

whole_checks() {  # all networks with every stage checked, not timed
    stage "$name-networks-whole-checks" --network all --precision fp32,tf32,fp16 --schedule all --N 1,32 --verify-only
}

whole_compiled() {  # torch.compile, which tunes for minutes
    network fp16,tf32,fp32 dependent 1 alexnet-torchvision torch-compile
}

groups() {  # AlexNet of 2012, ResNeXt and RegNet
    local cudnn=torch-nchw-fp32,torch-nhwc-fp32,torch-nhwc-tf32,torch-nchw-fp16,torch-nhwc-fp16 of
    for of in "alexnet-2012 1,32,128" "resnext-regnet 128" "resnext-regnet 1,32"; do
        stage "groups/$name-groups" --workload "${of% *}" --N "${of#* }" --rungs auto --precision fp32,tf32,fp16 \
            --peers "$cudnn" --no-baseline --seconds 0.03
    done
    local counters=(-m alexconv.profile --workload resnext-regnet --layers 2-4)
    whole "groups/counters/$name-floats" "counters of groups: not finished" "${counters[@]}" --N 32 \
        --rungs wgmma-floats,mma-tf32 --out
    whole "groups/counters/$name-mma" "counters of groups: not finished" "${counters[@]}" --N 128 \
        --rungs direct-groups-mma --out
}

memory_bound() {  # depthwise layers, first and last layers; the card's copy rate is in the same file
    local file="memory-bound/$name" cudnn=torch-nchw-fp32,torch-nhwc-fp32,torch-nchw-fp16,torch-nhwc-fp16
    local timed=(--no-baseline --seconds 0.04 --transfer pinned)
    mkdir -p "$folder/memory-bound"
    unpack "$file"
    grep -qs '"type":"ceilings"' "$folder/$file.jsonl" || "$python" -m alexconv.ceilings --out "$folder/$file.jsonl" ||
        failed "$file: the ceilings were not measured"
    stage "$file" --workload depthwise --N 128,1,32 --rungs depthwise --precision fp32,fp16 --peers "$cudnn" "${timed[@]}"
    stage "$file" --workload first-last --N 32 --precision fp16 --peers torch-nchw-fp16,torch-nhwc-fp16 "${timed[@]}" \
        --rungs direct-few-half,direct-few-mma,direct-few-filters-half,wgmma-half-blocked,wgmma-half-whole
    stage "$file" --workload first-last --layers 6-8 --N 32 --precision tf32 --peers torch-nchw-tf32,torch-nhwc-tf32 \
        --rungs direct-few-filters,wgmma-floats,wgmma-scaled "${timed[@]}"
}

choices() {  # what conv2d chooses for random layers, beside the likeliest rungs and beside cuDNN; seeds not yet used
    whole "choices/$name" "choices: not finished" "$here/scripts/measure/choices.py" --layers 300 --seed 10 --seconds 105 --out
    whole "outside/$name" "choices and cuDNN: not finished" "$here/scripts/measure/choices.py" --cudnn --layers 90 \
        --seed 27 --seconds 60 --out
}

dynamic() {  # builds for every shape beside builds for one, and first calls
    whole "library/dynamic/$name-layers" "builds for every shape: not finished" "$here/scripts/measure/dynamic.py" \
        --seconds 55 --out
    whole "library/dynamic/$name-first" "first calls: not finished" "$here/scripts/measure/library_bench.py" \
        --parts first --out
}

networks_of() {  # networks_of FILE "CLASS N SECONDS"...: patched networks and torch's, in the layouts of the class
    local file=$1 layouts of
    shift
    for of in "$@"; do
        set -- $of
        layouts=alexconv-nhwc,torch-nhwc
        [[ $1 == fp32 ]] && layouts=alexconv-nchw,torch-nchw,torch-nhwc
        points "$file" "$here/scripts/measure/network_bench.py" --precision "$1" --N "$2" --seconds "$3" \
            --contenders "$layouts"
    done
}

patched() {  # networks of torchvision through patch(fuse=True), torch and torch.compile
    networks_of "patched/$name" "fp16 32 60" "tf32 32 30" "fp16 1 20"
    points "patched/$name" "$here/scripts/measure/network_bench.py" \
        --networks resnet18,resnet50,mobilenet_v2,convnext_tiny,efficientnet_b0 \
        --precision fp16 --N 32 --seconds 40 --contenders inductor-nhwc
}

patched_more() {  # the other classes and batch sizes, for ten minutes
    networks_of "patched/$name-2" "tf32 1 80" "tf32 128 100" "fp16 128 60" "fp32 1 90" "fp32 32 90" "fp32 128 150"
}

short_ladder() {  # every rung on another card, and its ceilings
    stage "$name/main-job" --layers 1-5 --N 128 --no-baseline --seconds 0.1
    stage "$name/main-job" --layers 1-5 --N 1,32 --no-baseline --seconds 0.04
    whole "$name/ceilings" "the ceilings were not measured" -m alexconv.ceilings --out
    whole "$name/memory" "memory: not finished" "$here/scripts/measure/microbenchmarks.py" --parts memory --out
}

short_frontier() {  # the frontier on another card, and under load
    stage "$name/frontier" --layers 1-5 --N 128,1 --rungs direct-register,fused-unroll-matmul,family:igemm,mma,wgmma \
        --peers torch --no-baseline --seconds 0.03
    stage "$name/frontier-sustained" --layers 1-5 --N 128 --no-baseline --sustained 0.2 --seconds 0.02 \
        --peers "$same_contract" --rungs "$leaders"
}

short_library() {  # Conv2d on AlexNet on another card
    local class
    for class in fp32 tf32 fp16; do
        whole "$name/library-$class" "library $class: not finished" "$here/scripts/measure/library_bench.py" \
            --parts layers --workload alexnet --N 1,128 --precision "$class" --seconds 20 --out
    done
}

again() {  # the frontier's rungs and cuDNN once more, on another card
    stage "$name-frontier-again" --layers 1-5 --N 128 --rungs wgmma --peers torch --no-baseline --seconds 0.1
}

data() {  # the same points on other data: power, and so time, depends on it
    stage "$name-data" --layers 1-3 --N 128 --data uniform,relu,zeros --no-baseline --seconds 0.06 \
        --peers "$fastest_of_cudnn" --rungs wgmma-split,wgmma-winograd,wgmma-window-scaled,wgmma-scaled,wgmma-half
}

hard() {  # errors of conv2d and cuDNN on hard data, and the largest that a search finds for each rung
    whole "$name-hard" "hard: not finished, or a bound is broken" "$here/scripts/measure/hard_data.py" search conv2d --out
}

sweep() {  # sweep FILE N: the 2019 study's tile sizes
    points "$name-$1" -m alexconv.tune --workload lenet-70-k5 --N "$2" --rungs tiled,fused-unroll-matmul \
        --constants TILE --set RESTRICT=0 --set UNROLL=1
}

tune() {
    sweep tune 1000
}

tune_10000() {
    sweep tune-10000 10000
}

accuracy() {
    whole "$name-accuracy" "accuracy: not as promised" -m alexconv.accuracy --rungs all --out
}

errors() {  # side by side: neither is timed, and accuracy takes no longer than hard's search, before cuDNN's part
    beside hard accuracy
}

count() {  # count FILE ARGUMENTS...: what Nsight Compute counts
    local file=$1
    shift
    whole "$file" "$file: not finished" -m alexconv.profile "$@" --out
}

counters() {
    count "$name-profile" --rungs all --layers 2 --N 128
    count "$name-profile-alexnet" --rungs single,multi --layers 1,3 --N 128
    count "$name-profile-frontier" --rungs igemm-stream-k,mma-tf32,wgmma --layers 1,4,5 --N 128
    count "book/$name-profile" --layers 3 --N 128 --rungs "direct,direct-register,shared-output-tile,unroll-matmul,\
unroll-register-matmul,fused-unroll-matmul,igemm,igemm-async,igemm-stream-k,mma-tf32,mma-split,wgmma-half,wgmma-scaled,\
wgmma-split,wgmma-winograd"
}

timelines() {  # kernels of the leading rungs and of cuDNN on a time axis, with counters and the card's ceilings
    whole "$name-profile-cudnn" "the timelines are not finished" -m alexconv.profile --layers 1-5 --N 128 \
        --rungs "$leaders" --peers "$fastest_of_cudnn" --out
}

lenet_counters() {
    count "$name-profile-lenet" --workload lenet-72-k7 --N 1000 \
        --rungs tiled,unroll-matmul,unroll-matmul-constant,fused-unroll-matmul,shared-output-tile
    count "$name-profile-lenet-2019" --workload lenet-70-k5 --N 1000 \
        --rungs tiled,shared-core-tile-constant,unroll-matmul,unroll-register-matmul,fused-unroll-matmul
    count "$name-profile-lenet-2024" --workload lenet-86-k7 --N 1000 \
        --rungs tiled,tiled-constant,tiled-half,tiled-scatter-atomic,shared-input-tile,unroll-matmul,fused-unroll-matmul
}

host() {  # the main job and traces of the studies' rungs on the CPU
    stage host/main-job --layers 1-5 --N 1 --backend host
    count host/profile --backend host --layers 2 --blocks 13 --rungs single,multi,tiles,shared,gemm
}

counted() {  # with references of large batches on the CPU: counters are not timed
    beside references counters lenet_counters
}

networks() {  # layers with padding and strides: the two likeliest rungs of each class and layout, and cuDNN
    local of
    for of in "resnet50 1,32,128" "alexnet 1,32,128"; do
        stage "networks/$name" --workload "${of% *}" --N "${of#* }" --rungs auto:2 --precision fp32,tf32,fp16 \
            --peers torch --no-baseline --seconds 0.02
    done
}

library_calls() {  # host time and first calls of Conv2d, conv2d and torch
    whole "library/$name-calls" "library: not finished" "$here/scripts/measure/library_bench.py" --parts host,first --out
}

networks_of_library=alexnet,resnet50,vgg16,convnet-benchmarks

library_layers() {  # library_layers PRECISION: Conv2d in graphs and torch's cuDNN
    whole "library/$name-$1" "library $1: not finished" "$here/scripts/measure/library_bench.py" --parts layers \
        --workload "$networks_of_library" --N 1,32,128 --precision "$1" --seconds 240 --out
}

library_fp32() { library_layers fp32; }

library_tf32() { library_layers tf32; }

library_fp16() { library_layers fp16; }

course() {  # a course's unmodified kernel, and rungs
    stage "course/$name-wrapped" --kernel "$here/tests/sources/course.cu" --signature ece408 --workload lenet-86-k7 \
        --N 1000 --rungs course,direct-register,tiled,shared-output-tile,unroll-matmul,fused-unroll-matmul,family:igemm \
        --no-baseline --seconds 0.03
}

microbenchmarks() {
    whole "microbenchmarks/$name" "microbenchmarks: not finished" "$here/scripts/measure/microbenchmarks.py" --out
}

cluster() {  # two GPUs: batches in shards, and part of a study on one worker and on two
    local file="cluster/$name-x2" many=wgmma-split,wgmma-winograd,wgmma-half
    stage "$file" --cluster local:2 --layers 3 --N 2048,4096 --rungs "$many" --transfer pinned --shards 1,2 \
        --seconds 0.1 --no-baseline
    stage "$file" --cluster local:2 --layers 3 --N 8192 --rungs "$many,mk-sw-mt-si-c-vec" --shards 1,2 \
        --seconds 0.1 --no-baseline
    stage "$file-study" --cluster local:1 --study ece408-2023 --N 100,1000,5000 --seconds 0.1 --no-baseline
    stage "$file-study" --cluster local:2 --study ece408-2023 --N 100,1000,5000 --seconds 0.1 --no-baseline
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

more_sanitizers() {  # gradients, grouped and depthwise layers, first and last layers
    {
        for tool in memcheck initcheck synccheck racecheck; do
            sanitize "$tool" --direction dgrad,wgrad --layers 1,3 --N 1
            sanitize "$tool" --workload resnext-regnet --layers 1 --N 1 --rungs direct-groups,mma,wgmma
            sanitize "$tool" --workload depthwise --layers 1,20 --N 1 --rungs depthwise
            sanitize "$tool" --workload first-last --layers 1,6 --N 1 --rungs single
        done
        exit $status
    } | tee "$folder/$name-more-sanitizers.txt" || status=1
}

frontier_sanitizers() {
    {
        for tool in memcheck initcheck synccheck; do
            sanitize "$tool" --rungs family:igemm,mma,wgmma --layers 1-3 --N 1
        done
        sanitize racecheck --rungs family:igemm,mma,wgmma --layers 1,3 --N 1
        exit $status
    } | tee "$folder/$name-frontier-sanitizers.txt" || status=1
}

for what in $stages; do
    begun=$SECONDS
    "$what"
    echo "$what: $((SECONDS - begun)) s"
done
exit $status
