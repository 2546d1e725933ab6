searchable([
[
"Convolution on NVIDIA H200",
"index.html",
"page"
],
[
"Coverage of the studies",
"coverage.html",
"everything else"
],
[
"alexnet, layer 1",
"layer-alexnet-1.html",
"layers"
],
[
"alexnet, layer 2",
"layer-alexnet-2.html",
"layers"
],
[
"alexnet, layer 3",
"layer-alexnet-3.html",
"layers"
],
[
"alexnet, layer 4",
"layer-alexnet-4.html",
"layers"
],
[
"alexnet, layer 5",
"layer-alexnet-5.html",
"layers"
],
[
"lenet-72-k7, layer 1",
"layer-lenet-72-k7-1.html",
"layers"
],
[
"lenet-72-k7, layer 2",
"layer-lenet-72-k7-2.html",
"layers"
],
[
"lenet-70-k5, layer 1",
"layer-lenet-70-k5-1.html",
"layers"
],
[
"lenet-70-k5, layer 2",
"layer-lenet-70-k5-2.html",
"layers"
],
[
"lenet-86-k7, layer 1",
"layer-lenet-86-k7-1.html",
"layers"
],
[
"lenet-86-k7, layer 2",
"layer-lenet-86-k7-2.html",
"layers"
],
[
"alexnet",
"alexnet.html",
"workloads"
],
[
"lenet-72-k7",
"lenet-72-k7.html",
"workloads"
],
[
"lenet-70-k5",
"lenet-70-k5.html",
"workloads"
],
[
"lenet-86-k7",
"lenet-86-k7.html",
"workloads"
],
[
"The AlexNet study, purdue-2020",
"purdue-2020.html",
"studies"
],
[
"The LeNet-style study ece408-2018",
"ece408-2018.html",
"studies"
],
[
"The LeNet-style study ece408-2019",
"ece408-2019.html",
"studies"
],
[
"The LeNet-style study ece408-2023",
"ece408-2023.html",
"studies"
],
[
"The LeNet-style study ece408-2024",
"ece408-2024.html",
"studies"
],
[
"Constants and streams",
"constants.html",
"everything else"
],
[
"Counters",
"counters.html",
"everything else"
],
[
"Correctness",
"correctness.html",
"everything else"
],
[
"Launches and memory",
"launches.html",
"everything else"
],
[
"The ladder's times without a GPU",
"predicted.html",
"everything else"
],
[
"History over commits and cards",
"history.html",
"everything else"
],
[
"Method and runs",
"method.html",
"everything else"
],
[
"All rungs",
"rungs.html",
"everything else"
],
[
"direct",
"rung-direct.html",
"rungs"
],
[
"direct-register",
"rung-direct-register.html",
"rungs"
],
[
"direct-filter-one-thread",
"rung-direct-filter-one-thread.html",
"rungs"
],
[
"direct-filter-shared",
"rung-direct-filter-shared.html",
"rungs"
],
[
"direct-sum-shared",
"rung-direct-sum-shared.html",
"rungs"
],
[
"direct-half",
"rung-direct-half.html",
"rungs"
],
[
"direct-any",
"rung-direct-any.html",
"rungs"
],
[
"direct-any-half",
"rung-direct-any-half.html",
"rungs"
],
[
"direct-few",
"rung-direct-few.html",
"rungs"
],
[
"direct-few-half",
"rung-direct-few-half.html",
"rungs"
],
[
"channels",
"rung-channels.html",
"rungs"
],
[
"channels-filter-shared",
"rung-channels-filter-shared.html",
"rungs"
],
[
"channels-plane-shared",
"rung-channels-plane-shared.html",
"rungs"
],
[
"channels-vector",
"rung-channels-vector.html",
"rungs"
],
[
"channels-half",
"rung-channels-half.html",
"rungs"
],
[
"channels-atomic",
"rung-channels-atomic.html",
"rungs"
],
[
"tiled",
"rung-tiled.html",
"rungs"
],
[
"tiled-constant",
"rung-tiled-constant.html",
"rungs"
],
[
"tiled-channels-atomic",
"rung-tiled-channels-atomic.html",
"rungs"
],
[
"tiled-scatter-atomic",
"rung-tiled-scatter-atomic.html",
"rungs"
],
[
"tiled-half",
"rung-tiled-half.html",
"rungs"
],
[
"tiled-half2",
"rung-tiled-half2.html",
"rungs"
],
[
"shared-output-tile",
"rung-shared-output-tile.html",
"rungs"
],
[
"shared-input-tile",
"rung-shared-input-tile.html",
"rungs"
],
[
"shared-core-tile",
"rung-shared-core-tile.html",
"rungs"
],
[
"shared-core-tile-constant",
"rung-shared-core-tile-constant.html",
"rungs"
],
[
"unroll-matmul",
"rung-unroll-matmul.html",
"rungs"
],
[
"unroll-matmul-constant",
"rung-unroll-matmul-constant.html",
"rungs"
],
[
"unroll-register-matmul",
"rung-unroll-register-matmul.html",
"rungs"
],
[
"fused-unroll-matmul",
"rung-fused-unroll-matmul.html",
"rungs"
],
[
"igemm",
"rung-igemm.html",
"rungs"
],
[
"igemm-async",
"rung-igemm-async.html",
"rungs"
],
[
"igemm-stream-k",
"rung-igemm-stream-k.html",
"rungs"
],
[
"mma-tf32",
"rung-mma-tf32.html",
"rungs"
],
[
"mma-scaled",
"rung-mma-scaled.html",
"rungs"
],
[
"mma-split",
"rung-mma-split.html",
"rungs"
],
[
"mma-half",
"rung-mma-half.html",
"rungs"
],
[
"wgmma-half",
"rung-wgmma-half.html",
"rungs"
],
[
"wgmma-half-blocked",
"rung-wgmma-half-blocked.html",
"rungs"
],
[
"wgmma-scaled",
"rung-wgmma-scaled.html",
"rungs"
],
[
"wgmma-split",
"rung-wgmma-split.html",
"rungs"
],
[
"wgmma-window-half",
"rung-wgmma-window-half.html",
"rungs"
],
[
"wgmma-window-scaled",
"rung-wgmma-window-scaled.html",
"rungs"
],
[
"wgmma-split-resident",
"rung-wgmma-split-resident.html",
"rungs"
],
[
"wgmma-winograd",
"rung-wgmma-winograd.html",
"rungs"
],
[
"wgmma-window-in-place",
"rung-wgmma-window-in-place.html",
"rungs"
],
[
"wgmma-half-split-k",
"rung-wgmma-half-split-k.html",
"rungs"
],
[
"wgmma-half-whole",
"rung-wgmma-half-whole.html",
"rungs"
],
[
"wgmma-floats",
"rung-wgmma-floats.html",
"rungs"
],
[
"wgmma-floats-split",
"rung-wgmma-floats-split.html",
"rungs"
],
[
"alexnet: the fastest rung of each layer and class",
"index.html#best",
"table, Convolution on NVIDIA H200"
],
[
"alexnet: the ladder, all layers, N=128",
"index.html#alexnet-ladder",
"figure, Convolution on NVIDIA H200"
],
[
"Tables and figures of the studies",
"coverage.html#studies",
"table, Coverage of the studies"
],
[
"Variants of the studies",
"coverage.html#lenet-coverage",
"table, Coverage of the studies"
],
[
"The fastest rung of each class",
"layer-alexnet-1.html#layer-alexnet-1-best",
"table, alexnet, layer 1"
],
[
"alexnet, layer 1: the ladder, N=128",
"layer-alexnet-1.html#layer-alexnet-1-ladder",
"figure, alexnet, layer 1"
],
[
"Rungs and peers",
"layer-alexnet-1.html#layer-alexnet-1-points",
"table, alexnet, layer 1"
],
[
"The fastest rung of each class",
"layer-alexnet-2.html#layer-alexnet-2-best",
"table, alexnet, layer 2"
],
[
"alexnet, layer 2: the ladder, N=128",
"layer-alexnet-2.html#layer-alexnet-2-ladder",
"figure, alexnet, layer 2"
],
[
"Rungs and peers",
"layer-alexnet-2.html#layer-alexnet-2-points",
"table, alexnet, layer 2"
],
[
"The fastest rung of each class",
"layer-alexnet-3.html#layer-alexnet-3-best",
"table, alexnet, layer 3"
],
[
"alexnet, layer 3: the ladder, N=128",
"layer-alexnet-3.html#layer-alexnet-3-ladder",
"figure, alexnet, layer 3"
],
[
"Rungs and peers",
"layer-alexnet-3.html#layer-alexnet-3-points",
"table, alexnet, layer 3"
],
[
"The fastest rung of each class",
"layer-alexnet-4.html#layer-alexnet-4-best",
"table, alexnet, layer 4"
],
[
"alexnet, layer 4: the ladder, N=128",
"layer-alexnet-4.html#layer-alexnet-4-ladder",
"figure, alexnet, layer 4"
],
[
"Rungs and peers",
"layer-alexnet-4.html#layer-alexnet-4-points",
"table, alexnet, layer 4"
],
[
"The fastest rung of each class",
"layer-alexnet-5.html#layer-alexnet-5-best",
"table, alexnet, layer 5"
],
[
"alexnet, layer 5: the ladder, N=128",
"layer-alexnet-5.html#layer-alexnet-5-ladder",
"figure, alexnet, layer 5"
],
[
"Rungs and peers",
"layer-alexnet-5.html#layer-alexnet-5-points",
"table, alexnet, layer 5"
],
[
"The fastest rung of each class",
"layer-lenet-72-k7-1.html#layer-lenet-72-k7-1-best",
"table, lenet-72-k7, layer 1"
],
[
"Rungs and peers",
"layer-lenet-72-k7-1.html#layer-lenet-72-k7-1-points",
"table, lenet-72-k7, layer 1"
],
[
"The fastest rung of each class",
"layer-lenet-72-k7-2.html#layer-lenet-72-k7-2-best",
"table, lenet-72-k7, layer 2"
],
[
"Rungs and peers",
"layer-lenet-72-k7-2.html#layer-lenet-72-k7-2-points",
"table, lenet-72-k7, layer 2"
],
[
"The fastest rung of each class",
"layer-lenet-70-k5-1.html#layer-lenet-70-k5-1-best",
"table, lenet-70-k5, layer 1"
],
[
"Rungs and peers",
"layer-lenet-70-k5-1.html#layer-lenet-70-k5-1-points",
"table, lenet-70-k5, layer 1"
],
[
"The fastest rung of each class",
"layer-lenet-70-k5-2.html#layer-lenet-70-k5-2-best",
"table, lenet-70-k5, layer 2"
],
[
"Rungs and peers",
"layer-lenet-70-k5-2.html#layer-lenet-70-k5-2-points",
"table, lenet-70-k5, layer 2"
],
[
"The fastest rung of each class",
"layer-lenet-86-k7-1.html#layer-lenet-86-k7-1-best",
"table, lenet-86-k7, layer 1"
],
[
"lenet-86-k7, layer 1: the ladder, N=1000",
"layer-lenet-86-k7-1.html#layer-lenet-86-k7-1-ladder",
"figure, lenet-86-k7, layer 1"
],
[
"Rungs and peers",
"layer-lenet-86-k7-1.html#layer-lenet-86-k7-1-points",
"table, lenet-86-k7, layer 1"
],
[
"The fastest rung of each class",
"layer-lenet-86-k7-2.html#layer-lenet-86-k7-2-best",
"table, lenet-86-k7, layer 2"
],
[
"lenet-86-k7, layer 2: the ladder, N=1000",
"layer-lenet-86-k7-2.html#layer-lenet-86-k7-2-ladder",
"figure, lenet-86-k7, layer 2"
],
[
"Rungs and peers",
"layer-lenet-86-k7-2.html#layer-lenet-86-k7-2-points",
"table, lenet-86-k7, layer 2"
],
[
"alexnet: the ladder, all layers, N=128",
"alexnet.html#alexnet-ladder",
"figure, alexnet"
],
[
"alexnet: from rung to rung, all layers, N=128",
"alexnet.html#alexnet-waterfall",
"figure, alexnet"
],
[
"alexnet: every rung, all layers",
"alexnet.html#alexnet-rungs",
"table, alexnet"
],
[
"alexnet: gain of each rung over its parent, N=128 (×)",
"alexnet.html#alexnet-gains",
"table, alexnet"
],
[
"Five layers beside cuDNN: the fastest rung of each layer",
"alexnet.html#cudnn-summary",
"table, alexnet"
],
[
"alexnet: the fastest rung of each layer beside cuDNN, N=128",
"alexnet.html#alexnet-cudnn",
"figure, alexnet"
],
[
"Layer by layer beside cuDNN, N=128: study layout (nchw float32), fp32 class",
"alexnet.html#cudnn-fp32",
"table, alexnet"
],
[
"Layer by layer beside cuDNN, N=128: study layout (nchw float32), fp32-tile class",
"alexnet.html#cudnn-fp32-tile",
"table, alexnet"
],
[
"Layer by layer beside cuDNN, N=128: study layout (nchw float32), tf32 class",
"alexnet.html#cudnn-tf32",
"table, alexnet"
],
[
"Layer by layer beside cuDNN, N=128: native layout (nhwc float16), fp16 class",
"alexnet.html#cudnn-fp16",
"table, alexnet"
],
[
"alexnet: leading rungs and peers, layer 1 to layer 3, N=128",
"alexnet.html#alexnet-peers-1",
"figure, alexnet"
],
[
"alexnet: leading rungs and peers, layer 4 to all layers, N=128",
"alexnet.html#alexnet-peers-2",
"figure, alexnet"
],
[
"alexnet: every peer, N=128",
"alexnet.html#alexnet-peers-table",
"table, alexnet"
],
[
"alexnet: all measured layers together",
"alexnet.html#alexnet-overview",
"table, alexnet"
],
[
"alexnet: layer by layer",
"alexnet.html#alexnet-layers",
"table, alexnet"
],
[
"alexnet: roofline with compulsory bytes, N=128",
"alexnet.html#alexnet-roofline",
"figure, alexnet"
],
[
"alexnet: roofline with measured DRAM bytes, N=128",
"alexnet.html#alexnet-roofline-dram",
"figure, alexnet"
],
[
"alexnet: arithmetic and bytes, N=128",
"alexnet.html#alexnet-roofline-table",
"table, alexnet"
],
[
"alexnet: speed against error, all layers, N=128",
"alexnet.html#alexnet-accuracy",
"figure, alexnet"
],
[
"alexnet: error and time, all layers, N=128",
"alexnet.html#alexnet-accuracy-table",
"table, alexnet"
],
[
"alexnet: the same work under each transfer, layers 1, 2, 3, 4, 5, N=128",
"alexnet.html#alexnet-transfers",
"figure, alexnet"
],
[
"alexnet: transfers",
"alexnet.html#alexnet-transfers-table",
"table, alexnet"
],
[
"alexnet: time per image against the batch, all layers",
"alexnet.html#alexnet-per-image",
"figure, alexnet"
],
[
"alexnet: time per image against the batch, all layers (ms)",
"alexnet.html#alexnet-per-image-table",
"table, alexnet"
],
[
"alexnet: order by kernel time, N=128",
"alexnet.html#alexnet-order-kernel",
"table, alexnet"
],
[
"alexnet: agreement of the orders by kernel time, N=128",
"alexnet.html#alexnet-order-kernel-agreement",
"table, alexnet"
],
[
"alexnet: order by speedup, N=128",
"alexnet.html#alexnet-order-speedup",
"table, alexnet"
],
[
"alexnet: agreement of the orders by speedup, N=128",
"alexnet.html#alexnet-order-speedup-agreement",
"table, alexnet"
],
[
"lenet-72-k7: every rung, all layers",
"lenet-72-k7.html#lenet-72-k7-rungs",
"table, lenet-72-k7"
],
[
"lenet-72-k7: all measured layers together",
"lenet-72-k7.html#lenet-72-k7-overview",
"table, lenet-72-k7"
],
[
"lenet-72-k7: layer by layer",
"lenet-72-k7.html#lenet-72-k7-layers",
"table, lenet-72-k7"
],
[
"lenet-72-k7: kernels and copies of both layers, default constants, N=10000",
"lenet-72-k7.html#lenet-72-k7-breakdown",
"figure, lenet-72-k7"
],
[
"lenet-72-k7: op time against the batch, default constants",
"lenet-72-k7.html#lenet-72-k7-scaling",
"figure, lenet-72-k7"
],
[
"lenet-72-k7: roofline with compulsory bytes, N=10000",
"lenet-72-k7.html#lenet-72-k7-roofline",
"figure, lenet-72-k7"
],
[
"lenet-72-k7: arithmetic and bytes, N=10000",
"lenet-72-k7.html#lenet-72-k7-roofline-table",
"table, lenet-72-k7"
],
[
"lenet-72-k7: speed against error, all layers, N=10000",
"lenet-72-k7.html#lenet-72-k7-accuracy",
"figure, lenet-72-k7"
],
[
"lenet-72-k7: error and time, all layers, N=10000",
"lenet-72-k7.html#lenet-72-k7-accuracy-table",
"table, lenet-72-k7"
],
[
"lenet-72-k7: time per image against the batch, all layers",
"lenet-72-k7.html#lenet-72-k7-per-image",
"figure, lenet-72-k7"
],
[
"lenet-72-k7: time per image against the batch, all layers (ms)",
"lenet-72-k7.html#lenet-72-k7-per-image-table",
"table, lenet-72-k7"
],
[
"lenet-70-k5: every rung, all layers",
"lenet-70-k5.html#lenet-70-k5-rungs",
"table, lenet-70-k5"
],
[
"lenet-70-k5: all measured layers together",
"lenet-70-k5.html#lenet-70-k5-overview",
"table, lenet-70-k5"
],
[
"lenet-70-k5: layer by layer",
"lenet-70-k5.html#lenet-70-k5-layers",
"table, lenet-70-k5"
],
[
"lenet-70-k5: kernels and copies of both layers, default constants, N=10000",
"lenet-70-k5.html#lenet-70-k5-breakdown",
"figure, lenet-70-k5"
],
[
"lenet-70-k5: op time against the batch, default constants",
"lenet-70-k5.html#lenet-70-k5-scaling",
"figure, lenet-70-k5"
],
[
"lenet-70-k5: roofline with compulsory bytes, N=10000",
"lenet-70-k5.html#lenet-70-k5-roofline",
"figure, lenet-70-k5"
],
[
"lenet-70-k5: arithmetic and bytes, N=10000",
"lenet-70-k5.html#lenet-70-k5-roofline-table",
"table, lenet-70-k5"
],
[
"lenet-70-k5: speed against error, all layers, N=10000",
"lenet-70-k5.html#lenet-70-k5-accuracy",
"figure, lenet-70-k5"
],
[
"lenet-70-k5: error and time, all layers, N=10000",
"lenet-70-k5.html#lenet-70-k5-accuracy-table",
"table, lenet-70-k5"
],
[
"lenet-70-k5: time per image against the batch, all layers",
"lenet-70-k5.html#lenet-70-k5-per-image",
"figure, lenet-70-k5"
],
[
"lenet-70-k5: time per image against the batch, all layers (ms)",
"lenet-70-k5.html#lenet-70-k5-per-image-table",
"table, lenet-70-k5"
],
[
"lenet-86-k7: the ladder, all layers, N=1000",
"lenet-86-k7.html#lenet-86-k7-ladder",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: from rung to rung, all layers, N=1000",
"lenet-86-k7.html#lenet-86-k7-waterfall",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: every rung, all layers",
"lenet-86-k7.html#lenet-86-k7-rungs",
"table, lenet-86-k7"
],
[
"lenet-86-k7: gain of each rung over its parent, N=1000 (×)",
"lenet-86-k7.html#lenet-86-k7-gains",
"table, lenet-86-k7"
],
[
"lenet-86-k7: all measured layers together",
"lenet-86-k7.html#lenet-86-k7-overview",
"table, lenet-86-k7"
],
[
"lenet-86-k7: layer by layer",
"lenet-86-k7.html#lenet-86-k7-layers",
"table, lenet-86-k7"
],
[
"lenet-86-k7: kernels and copies of both layers, default constants, N=10000",
"lenet-86-k7.html#lenet-86-k7-breakdown",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: op time against the batch, default constants",
"lenet-86-k7.html#lenet-86-k7-scaling",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: roofline with compulsory bytes, N=10000",
"lenet-86-k7.html#lenet-86-k7-roofline",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: arithmetic and bytes, N=10000",
"lenet-86-k7.html#lenet-86-k7-roofline-table",
"table, lenet-86-k7"
],
[
"lenet-86-k7: speed against error, all layers, N=10000",
"lenet-86-k7.html#lenet-86-k7-accuracy",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: error and time, all layers, N=10000",
"lenet-86-k7.html#lenet-86-k7-accuracy-table",
"table, lenet-86-k7"
],
[
"lenet-86-k7: time per image against the batch, all layers",
"lenet-86-k7.html#lenet-86-k7-per-image",
"figure, lenet-86-k7"
],
[
"lenet-86-k7: time per image against the batch, all layers (ms)",
"lenet-86-k7.html#lenet-86-k7-per-image-table",
"table, lenet-86-k7"
],
[
"Table 1: the study's abbreviations and the rungs here",
"purdue-2020.html#table-1",
"table, The AlexNet study, purdue-2020"
],
[
"Table 2: block of each layer",
"purdue-2020.html#table-2",
"table, The AlexNet study, purdue-2020"
],
[
"The study's headline: channels-vector over all layers, N=128",
"purdue-2020.html#headline",
"table, The AlexNet study, purdue-2020"
],
[
"Table 3: copying overhead (ms)",
"purdue-2020.html#table-3",
"table, The AlexNet study, purdue-2020"
],
[
"Table 4: kernel time, one kernel per layer (ms)",
"purdue-2020.html#table-4",
"table, The AlexNet study, purdue-2020"
],
[
"Table 5: speedup with the copies, over the serial CPU run, one kernel per layer",
"purdue-2020.html#table-5",
"table, The AlexNet study, purdue-2020"
],
[
"Table 6: kernel time, channels in parallel (ms)",
"purdue-2020.html#table-6",
"table, The AlexNet study, purdue-2020"
],
[
"Table 7: speedup with the copies, over the serial CPU run, channels in parallel",
"purdue-2020.html#table-7",
"table, The AlexNet study, purdue-2020"
],
[
"Fig. 3a: speedup of layer 1",
"purdue-2020.html#fig-3a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 3b: kernels and copies of layer 1, N=128",
"purdue-2020.html#fig-3b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 4a: speedup of layer 2",
"purdue-2020.html#fig-4a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 4b: kernels and copies of layer 2, N=128",
"purdue-2020.html#fig-4b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 5a: speedup of layer 3",
"purdue-2020.html#fig-5a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 5b: kernels and copies of layer 3, N=128",
"purdue-2020.html#fig-5b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 6a: speedup of layer 4",
"purdue-2020.html#fig-6a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 6b: kernels and copies of layer 4, N=128",
"purdue-2020.html#fig-6b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 7a: speedup of layer 5",
"purdue-2020.html#fig-7a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 7b: kernels and copies of layer 5, N=128",
"purdue-2020.html#fig-7b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 8a: overall speedup of all layers, N=1",
"purdue-2020.html#fig-8a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 8b: overall speedup of all layers, N=32",
"purdue-2020.html#fig-8b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 8c: overall speedup of all layers, N=128",
"purdue-2020.html#fig-8c",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 9: coalesced accesses in layer 1",
"purdue-2020.html#fig-9",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 10: non-coalesced accesses in layer 1",
"purdue-2020.html#fig-10",
"figure, The AlexNet study, purdue-2020"
],
[
"Table 8: speedup of layer 1, coalesced and non-coalesced",
"purdue-2020.html#table-8",
"table, The AlexNet study, purdue-2020"
],
[
"Fig. 11: coalesced and non-coalesced accesses in layer 1",
"purdue-2020.html#fig-11",
"figure, The AlexNet study, purdue-2020"
],
[
"Table 9: kernels and copies of channels-vector, N=128 (ms)",
"purdue-2020.html#table-9",
"table, The AlexNet study, purdue-2020"
],
[
"Fig. 12a: copies and kernels in all layers, channels-vector",
"purdue-2020.html#fig-12a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 12b: copies and kernels in all layers, channels-half",
"purdue-2020.html#fig-12b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 12c: copies and kernels in all layers, channels-plane-shared",
"purdue-2020.html#fig-12c",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 13a: speedup of direct-filter-shared by layer and batch",
"purdue-2020.html#fig-13a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 13b: speedup of channels-vector by layer and batch",
"purdue-2020.html#fig-13b",
"figure, The AlexNet study, purdue-2020"
],
[
"Table 10: kernel time of direct-filter-shared against the batch",
"purdue-2020.html#table-10",
"table, The AlexNet study, purdue-2020"
],
[
"Linear fit of direct-filter-shared",
"purdue-2020.html#table-10-fit",
"table, The AlexNet study, purdue-2020"
],
[
"Fig. 14a: kernel time of direct-filter-shared against the batch",
"purdue-2020.html#fig-14a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 14b: speedup of direct-filter-shared against the batch",
"purdue-2020.html#fig-14b",
"figure, The AlexNet study, purdue-2020"
],
[
"Table 11: kernel time of channels-atomic against the batch",
"purdue-2020.html#table-11",
"table, The AlexNet study, purdue-2020"
],
[
"Linear fit of channels-atomic",
"purdue-2020.html#table-11-fit",
"table, The AlexNet study, purdue-2020"
],
[
"Fig. 15a: kernel time of channels-atomic against the batch",
"purdue-2020.html#fig-15a",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 15b: speedup of channels-atomic against the batch",
"purdue-2020.html#fig-15b",
"figure, The AlexNet study, purdue-2020"
],
[
"Fig. 16: partial planes in memory against atomic additions, N=128",
"purdue-2020.html#fig-16",
"figure, The AlexNet study, purdue-2020"
],
[
"ece408-2018: op times as the study prints them",
"ece408-2018.html#ece408-2018-by-batch",
"table, The LeNet-style study ece408-2018"
],
[
"ece408-2018: op times of its variants",
"ece408-2018.html#ece408-2018-op-times",
"table, The LeNet-style study ece408-2018"
],
[
"ece408-2018: op times of its variants, here and there, N=10000",
"ece408-2018.html#ece408-2018-variants",
"figure, The LeNet-style study ece408-2018"
],
[
"ece408-2018: from variant to variant, both layers, N=10000",
"ece408-2018.html#ece408-2018-waterfall",
"figure, The LeNet-style study ece408-2018"
],
[
"ece408-2018: gain of each variant over tiled-grid-baseline (×)",
"ece408-2018.html#ece408-2018-gains",
"table, The LeNet-style study ece408-2018"
],
[
"ece408-2018: kernel execution properties of the baseline, N=1000",
"ece408-2018.html#ece408-2018-properties",
"table, The LeNet-style study ece408-2018"
],
[
"ece408-2018: counters of the rungs that stand for its variants",
"ece408-2018.html#ece408-2018-counters",
"table, The LeNet-style study ece408-2018"
],
[
"ece408-2019: op times as the study prints them",
"ece408-2019.html#ece408-2019-by-batch",
"table, The LeNet-style study ece408-2019"
],
[
"ece408-2019: op times of its variants",
"ece408-2019.html#ece408-2019-op-times",
"table, The LeNet-style study ece408-2019"
],
[
"ece408-2019: op times of its variants, here and there, N=10000",
"ece408-2019.html#ece408-2019-variants",
"figure, The LeNet-style study ece408-2019"
],
[
"ece408-2019: from variant to variant, both layers, N=10000",
"ece408-2019.html#ece408-2019-waterfall",
"figure, The LeNet-style study ece408-2019"
],
[
"ece408-2019: gain of each variant over tiled-grid-baseline (×)",
"ece408-2019.html#ece408-2019-gains",
"table, The LeNet-style study ece408-2019"
],
[
"ece408-2019: the study's sweep",
"ece408-2019.html#ece408-2019-sweep",
"table, The LeNet-style study ece408-2019"
],
[
"ece408-2019: counters of the rungs that stand for its variants",
"ece408-2019.html#ece408-2019-counters",
"table, The LeNet-style study ece408-2019"
],
[
"ece408-2023: op times as the study prints them",
"ece408-2023.html#ece408-2023-by-batch",
"table, The LeNet-style study ece408-2023"
],
[
"ece408-2023: op times of its variants",
"ece408-2023.html#ece408-2023-op-times",
"table, The LeNet-style study ece408-2023"
],
[
"ece408-2023: op times of its variants, here and there, N=5000",
"ece408-2023.html#ece408-2023-variants",
"figure, The LeNet-style study ece408-2023"
],
[
"ece408-2023: from variant to variant, both layers, N=5000",
"ece408-2023.html#ece408-2023-waterfall",
"figure, The LeNet-style study ece408-2023"
],
[
"ece408-2023: gain of each variant over baseline (×)",
"ece408-2023.html#ece408-2023-gains",
"table, The LeNet-style study ece408-2023"
],
[
"ece408-2023: counters of the rungs that stand for its variants",
"ece408-2023.html#ece408-2023-counters",
"table, The LeNet-style study ece408-2023"
],
[
"ece408-2024: op times as the study prints them",
"ece408-2024.html#ece408-2024-by-batch",
"table, The LeNet-style study ece408-2024"
],
[
"ece408-2024: op times of its variants",
"ece408-2024.html#ece408-2024-op-times",
"table, The LeNet-style study ece408-2024"
],
[
"ece408-2024: op times of its variants, here and there, N=10000",
"ece408-2024.html#ece408-2024-variants",
"figure, The LeNet-style study ece408-2024"
],
[
"ece408-2024: from variant to variant, both layers, N=10000",
"ece408-2024.html#ece408-2024-waterfall",
"figure, The LeNet-style study ece408-2024"
],
[
"ece408-2024: gain of each variant over baseline (×)",
"ece408-2024.html#ece408-2024-gains",
"table, The LeNet-style study ece408-2024"
],
[
"ece408-2024: counters of the rungs that stand for its variants",
"ece408-2024.html#ece408-2024-counters",
"table, The LeNet-style study ece408-2024"
],
[
"alexnet: one constant changed, N=128",
"constants.html#alexnet-ablations",
"figure, Constants and streams"
],
[
"lenet-70-k5: one constant changed, N=10000",
"constants.html#lenet-70-k5-ablations",
"figure, Constants and streams"
],
[
"lenet-86-k7: one constant changed, N=1000",
"constants.html#lenet-86-k7-ablations",
"figure, Constants and streams"
],
[
"One constant changed",
"constants.html#ablations",
"table, Constants and streams"
],
[
"lenet-72-k7: sweep of fused-unroll-matmul, N=10000",
"constants.html#lenet-72-k7-sweep-fused-unroll-matmul",
"figure, Constants and streams"
],
[
"lenet-70-k5: sweep of tiled, N=10000",
"constants.html#lenet-70-k5-sweep-tiled",
"figure, Constants and streams"
],
[
"lenet-70-k5: sweep of fused-unroll-matmul, N=10000",
"constants.html#lenet-70-k5-sweep-fused-unroll-matmul",
"figure, Constants and streams"
],
[
"lenet-86-k7: sweep of tiled, N=5000",
"constants.html#lenet-86-k7-sweep-tiled",
"figure, Constants and streams"
],
[
"alexnet: streams, N=128",
"constants.html#alexnet-timeline",
"figure, Constants and streams"
],
[
"lenet-86-k7: streams, N=10000",
"constants.html#lenet-86-k7-timeline",
"figure, Constants and streams"
],
[
"Overlap of copies and kernels",
"constants.html#overlap",
"table, Constants and streams"
],
[
"Profiles from ncu",
"counters.html#profiles-ncu",
"table, Counters"
],
[
"Errors of every point",
"correctness.html#correctness",
"table, Correctness"
],
[
"Run-to-run variation",
"correctness.html#spread",
"table, Correctness"
],
[
"Points without a result",
"correctness.html#problems",
"table, Correctness"
],
[
"Measurements to distrust",
"correctness.html#doubts",
"table, Correctness"
],
[
"Launches",
"launches.html#launches",
"table, Launches and memory"
],
[
"Memory behaviour, predicted",
"launches.html#memory",
"table, Launches and memory"
],
[
"alexnet: predicted over measured times, N=128",
"predicted.html#predicted-times",
"figure, The ladder's times without a GPU"
],
[
"alexnet: predicted times, all rungs",
"predicted.html#predicted",
"table, The ladder's times without a GPU"
],
[
"alexnet: the same points in 7 runs, N=128",
"history.html#history-figure",
"figure, History over commits and cards"
],
[
"Every run",
"history.html#history",
"table, History over commits and cards"
],
[
"Runs",
"method.html#runs",
"table, Method and runs"
],
[
"Rungs",
"rungs.html#rungs-table",
"table, All rungs"
],
[
"Default constants",
"rung-direct.html#direct-times",
"table, direct"
],
[
"Other constants and transfers",
"rung-direct.html#direct-others",
"table, direct"
],
[
"Each kernel",
"rung-direct.html#direct-counters",
"table, direct"
],
[
"Launches",
"rung-direct.html#direct-launches",
"table, direct"
],
[
"Constants and defaults",
"rung-direct.html#direct-constants",
"table, direct"
],
[
"Default constants",
"rung-direct-register.html#direct-register-times",
"table, direct-register"
],
[
"Other constants and transfers",
"rung-direct-register.html#direct-register-others",
"table, direct-register"
],
[
"Each kernel",
"rung-direct-register.html#direct-register-counters",
"table, direct-register"
],
[
"Launches",
"rung-direct-register.html#direct-register-launches",
"table, direct-register"
],
[
"Constants and defaults",
"rung-direct-register.html#direct-register-constants",
"table, direct-register"
],
[
"Default constants",
"rung-direct-filter-one-thread.html#direct-filter-one-thread-times",
"table, direct-filter-one-thread"
],
[
"Other constants and transfers",
"rung-direct-filter-one-thread.html#direct-filter-one-thread-others",
"table, direct-filter-one-thread"
],
[
"Each kernel",
"rung-direct-filter-one-thread.html#direct-filter-one-thread-counters",
"table, direct-filter-one-thread"
],
[
"Launches",
"rung-direct-filter-one-thread.html#direct-filter-one-thread-launches",
"table, direct-filter-one-thread"
],
[
"Constants and defaults",
"rung-direct-filter-one-thread.html#direct-filter-one-thread-constants",
"table, direct-filter-one-thread"
],
[
"Default constants",
"rung-direct-filter-shared.html#direct-filter-shared-times",
"table, direct-filter-shared"
],
[
"Other constants and transfers",
"rung-direct-filter-shared.html#direct-filter-shared-others",
"table, direct-filter-shared"
],
[
"Each kernel",
"rung-direct-filter-shared.html#direct-filter-shared-counters",
"table, direct-filter-shared"
],
[
"Launches",
"rung-direct-filter-shared.html#direct-filter-shared-launches",
"table, direct-filter-shared"
],
[
"Constants and defaults",
"rung-direct-filter-shared.html#direct-filter-shared-constants",
"table, direct-filter-shared"
],
[
"Default constants",
"rung-direct-sum-shared.html#direct-sum-shared-times",
"table, direct-sum-shared"
],
[
"Other constants and transfers",
"rung-direct-sum-shared.html#direct-sum-shared-others",
"table, direct-sum-shared"
],
[
"Each kernel",
"rung-direct-sum-shared.html#direct-sum-shared-counters",
"table, direct-sum-shared"
],
[
"Launches",
"rung-direct-sum-shared.html#direct-sum-shared-launches",
"table, direct-sum-shared"
],
[
"Constants and defaults",
"rung-direct-sum-shared.html#direct-sum-shared-constants",
"table, direct-sum-shared"
],
[
"Default constants",
"rung-direct-half.html#direct-half-times",
"table, direct-half"
],
[
"Each kernel",
"rung-direct-half.html#direct-half-counters",
"table, direct-half"
],
[
"Launches",
"rung-direct-half.html#direct-half-launches",
"table, direct-half"
],
[
"Constants and defaults",
"rung-direct-half.html#direct-half-constants",
"table, direct-half"
],
[
"Default constants",
"rung-direct-any.html#direct-any-times",
"table, direct-any"
],
[
"Each kernel",
"rung-direct-any.html#direct-any-counters",
"table, direct-any"
],
[
"Launches",
"rung-direct-any.html#direct-any-launches",
"table, direct-any"
],
[
"Default constants",
"rung-direct-any-half.html#direct-any-half-times",
"table, direct-any-half"
],
[
"Each kernel",
"rung-direct-any-half.html#direct-any-half-counters",
"table, direct-any-half"
],
[
"Launches",
"rung-direct-any-half.html#direct-any-half-launches",
"table, direct-any-half"
],
[
"Layers that it does not take",
"rung-direct-few.html#direct-few-refused",
"table, direct-few"
],
[
"Constants and defaults",
"rung-direct-few.html#direct-few-constants",
"table, direct-few"
],
[
"Layers that it does not take",
"rung-direct-few-half.html#direct-few-half-refused",
"table, direct-few-half"
],
[
"Constants and defaults",
"rung-direct-few-half.html#direct-few-half-constants",
"table, direct-few-half"
],
[
"Default constants",
"rung-channels.html#channels-times",
"table, channels"
],
[
"Each kernel",
"rung-channels.html#channels-counters",
"table, channels"
],
[
"Launches",
"rung-channels.html#channels-launches",
"table, channels"
],
[
"Constants and defaults",
"rung-channels.html#channels-constants",
"table, channels"
],
[
"Default constants",
"rung-channels-filter-shared.html#channels-filter-shared-times",
"table, channels-filter-shared"
],
[
"Other constants and transfers",
"rung-channels-filter-shared.html#channels-filter-shared-others",
"table, channels-filter-shared"
],
[
"Each kernel",
"rung-channels-filter-shared.html#channels-filter-shared-counters",
"table, channels-filter-shared"
],
[
"Launches",
"rung-channels-filter-shared.html#channels-filter-shared-launches",
"table, channels-filter-shared"
],
[
"Constants and defaults",
"rung-channels-filter-shared.html#channels-filter-shared-constants",
"table, channels-filter-shared"
],
[
"Default constants",
"rung-channels-plane-shared.html#channels-plane-shared-times",
"table, channels-plane-shared"
],
[
"Each kernel",
"rung-channels-plane-shared.html#channels-plane-shared-counters",
"table, channels-plane-shared"
],
[
"Launches",
"rung-channels-plane-shared.html#channels-plane-shared-launches",
"table, channels-plane-shared"
],
[
"Constants and defaults",
"rung-channels-plane-shared.html#channels-plane-shared-constants",
"table, channels-plane-shared"
],
[
"Default constants",
"rung-channels-vector.html#channels-vector-times",
"table, channels-vector"
],
[
"Other constants and transfers",
"rung-channels-vector.html#channels-vector-others",
"table, channels-vector"
],
[
"Each kernel",
"rung-channels-vector.html#channels-vector-counters",
"table, channels-vector"
],
[
"Launches",
"rung-channels-vector.html#channels-vector-launches",
"table, channels-vector"
],
[
"Constants and defaults",
"rung-channels-vector.html#channels-vector-constants",
"table, channels-vector"
],
[
"Default constants",
"rung-channels-half.html#channels-half-times",
"table, channels-half"
],
[
"Each kernel",
"rung-channels-half.html#channels-half-counters",
"table, channels-half"
],
[
"Launches",
"rung-channels-half.html#channels-half-launches",
"table, channels-half"
],
[
"Constants and defaults",
"rung-channels-half.html#channels-half-constants",
"table, channels-half"
],
[
"Default constants",
"rung-channels-atomic.html#channels-atomic-times",
"table, channels-atomic"
],
[
"Each kernel",
"rung-channels-atomic.html#channels-atomic-counters",
"table, channels-atomic"
],
[
"Launches",
"rung-channels-atomic.html#channels-atomic-launches",
"table, channels-atomic"
],
[
"Constants and defaults",
"rung-channels-atomic.html#channels-atomic-constants",
"table, channels-atomic"
],
[
"Default constants",
"rung-tiled.html#tiled-times",
"table, tiled"
],
[
"Other constants and transfers",
"rung-tiled.html#tiled-others",
"table, tiled"
],
[
"Each kernel",
"rung-tiled.html#tiled-counters",
"table, tiled"
],
[
"Launches",
"rung-tiled.html#tiled-launches",
"table, tiled"
],
[
"Constants and defaults",
"rung-tiled.html#tiled-constants",
"table, tiled"
],
[
"Default constants",
"rung-tiled-constant.html#tiled-constant-times",
"table, tiled-constant"
],
[
"Other constants and transfers",
"rung-tiled-constant.html#tiled-constant-others",
"table, tiled-constant"
],
[
"Layers that it does not take",
"rung-tiled-constant.html#tiled-constant-refused",
"table, tiled-constant"
],
[
"Each kernel",
"rung-tiled-constant.html#tiled-constant-counters",
"table, tiled-constant"
],
[
"Constants and defaults",
"rung-tiled-constant.html#tiled-constant-constants",
"table, tiled-constant"
],
[
"Default constants",
"rung-tiled-channels-atomic.html#tiled-channels-atomic-times",
"table, tiled-channels-atomic"
],
[
"Each kernel",
"rung-tiled-channels-atomic.html#tiled-channels-atomic-counters",
"table, tiled-channels-atomic"
],
[
"Launches",
"rung-tiled-channels-atomic.html#tiled-channels-atomic-launches",
"table, tiled-channels-atomic"
],
[
"Constants and defaults",
"rung-tiled-channels-atomic.html#tiled-channels-atomic-constants",
"table, tiled-channels-atomic"
],
[
"Default constants",
"rung-tiled-scatter-atomic.html#tiled-scatter-atomic-times",
"table, tiled-scatter-atomic"
],
[
"Each kernel",
"rung-tiled-scatter-atomic.html#tiled-scatter-atomic-counters",
"table, tiled-scatter-atomic"
],
[
"Launches",
"rung-tiled-scatter-atomic.html#tiled-scatter-atomic-launches",
"table, tiled-scatter-atomic"
],
[
"Constants and defaults",
"rung-tiled-scatter-atomic.html#tiled-scatter-atomic-constants",
"table, tiled-scatter-atomic"
],
[
"Default constants",
"rung-tiled-half.html#tiled-half-times",
"table, tiled-half"
],
[
"Other constants and transfers",
"rung-tiled-half.html#tiled-half-others",
"table, tiled-half"
],
[
"Each kernel",
"rung-tiled-half.html#tiled-half-counters",
"table, tiled-half"
],
[
"Launches",
"rung-tiled-half.html#tiled-half-launches",
"table, tiled-half"
],
[
"Constants and defaults",
"rung-tiled-half.html#tiled-half-constants",
"table, tiled-half"
],
[
"Default constants",
"rung-tiled-half2.html#tiled-half2-times",
"table, tiled-half2"
],
[
"Each kernel",
"rung-tiled-half2.html#tiled-half2-counters",
"table, tiled-half2"
],
[
"Launches",
"rung-tiled-half2.html#tiled-half2-launches",
"table, tiled-half2"
],
[
"Constants and defaults",
"rung-tiled-half2.html#tiled-half2-constants",
"table, tiled-half2"
],
[
"Default constants",
"rung-shared-output-tile.html#shared-output-tile-times",
"table, shared-output-tile"
],
[
"Each kernel",
"rung-shared-output-tile.html#shared-output-tile-counters",
"table, shared-output-tile"
],
[
"Launches",
"rung-shared-output-tile.html#shared-output-tile-launches",
"table, shared-output-tile"
],
[
"Constants and defaults",
"rung-shared-output-tile.html#shared-output-tile-constants",
"table, shared-output-tile"
],
[
"Default constants",
"rung-shared-input-tile.html#shared-input-tile-times",
"table, shared-input-tile"
],
[
"Each kernel",
"rung-shared-input-tile.html#shared-input-tile-counters",
"table, shared-input-tile"
],
[
"Launches",
"rung-shared-input-tile.html#shared-input-tile-launches",
"table, shared-input-tile"
],
[
"Constants and defaults",
"rung-shared-input-tile.html#shared-input-tile-constants",
"table, shared-input-tile"
],
[
"Default constants",
"rung-shared-core-tile.html#shared-core-tile-times",
"table, shared-core-tile"
],
[
"Each kernel",
"rung-shared-core-tile.html#shared-core-tile-counters",
"table, shared-core-tile"
],
[
"Launches",
"rung-shared-core-tile.html#shared-core-tile-launches",
"table, shared-core-tile"
],
[
"Constants and defaults",
"rung-shared-core-tile.html#shared-core-tile-constants",
"table, shared-core-tile"
],
[
"Default constants",
"rung-shared-core-tile-constant.html#shared-core-tile-constant-times",
"table, shared-core-tile-constant"
],
[
"Layers that it does not take",
"rung-shared-core-tile-constant.html#shared-core-tile-constant-refused",
"table, shared-core-tile-constant"
],
[
"Each kernel",
"rung-shared-core-tile-constant.html#shared-core-tile-constant-counters",
"table, shared-core-tile-constant"
],
[
"Launches",
"rung-shared-core-tile-constant.html#shared-core-tile-constant-launches",
"table, shared-core-tile-constant"
],
[
"Constants and defaults",
"rung-shared-core-tile-constant.html#shared-core-tile-constant-constants",
"table, shared-core-tile-constant"
],
[
"Default constants",
"rung-unroll-matmul.html#unroll-matmul-times",
"table, unroll-matmul"
],
[
"Other constants and transfers",
"rung-unroll-matmul.html#unroll-matmul-others",
"table, unroll-matmul"
],
[
"Each kernel",
"rung-unroll-matmul.html#unroll-matmul-counters",
"table, unroll-matmul"
],
[
"Launches",
"rung-unroll-matmul.html#unroll-matmul-launches",
"table, unroll-matmul"
],
[
"Constants and defaults",
"rung-unroll-matmul.html#unroll-matmul-constants",
"table, unroll-matmul"
],
[
"Default constants",
"rung-unroll-matmul-constant.html#unroll-matmul-constant-times",
"table, unroll-matmul-constant"
],
[
"Other constants and transfers",
"rung-unroll-matmul-constant.html#unroll-matmul-constant-others",
"table, unroll-matmul-constant"
],
[
"Layers that it does not take",
"rung-unroll-matmul-constant.html#unroll-matmul-constant-refused",
"table, unroll-matmul-constant"
],
[
"Each kernel",
"rung-unroll-matmul-constant.html#unroll-matmul-constant-counters",
"table, unroll-matmul-constant"
],
[
"Constants and defaults",
"rung-unroll-matmul-constant.html#unroll-matmul-constant-constants",
"table, unroll-matmul-constant"
],
[
"Default constants",
"rung-unroll-register-matmul.html#unroll-register-matmul-times",
"table, unroll-register-matmul"
],
[
"Other constants and transfers",
"rung-unroll-register-matmul.html#unroll-register-matmul-others",
"table, unroll-register-matmul"
],
[
"Each kernel",
"rung-unroll-register-matmul.html#unroll-register-matmul-counters",
"table, unroll-register-matmul"
],
[
"Launches",
"rung-unroll-register-matmul.html#unroll-register-matmul-launches",
"table, unroll-register-matmul"
],
[
"Constants and defaults",
"rung-unroll-register-matmul.html#unroll-register-matmul-constants",
"table, unroll-register-matmul"
],
[
"Default constants",
"rung-fused-unroll-matmul.html#fused-unroll-matmul-times",
"table, fused-unroll-matmul"
],
[
"Other constants and transfers",
"rung-fused-unroll-matmul.html#fused-unroll-matmul-others",
"table, fused-unroll-matmul"
],
[
"Each kernel",
"rung-fused-unroll-matmul.html#fused-unroll-matmul-counters",
"table, fused-unroll-matmul"
],
[
"Launches",
"rung-fused-unroll-matmul.html#fused-unroll-matmul-launches",
"table, fused-unroll-matmul"
],
[
"Constants and defaults",
"rung-fused-unroll-matmul.html#fused-unroll-matmul-constants",
"table, fused-unroll-matmul"
],
[
"Default constants",
"rung-igemm.html#igemm-times",
"table, igemm"
],
[
"Each kernel",
"rung-igemm.html#igemm-counters",
"table, igemm"
],
[
"Launches",
"rung-igemm.html#igemm-launches",
"table, igemm"
],
[
"Constants and defaults",
"rung-igemm.html#igemm-constants",
"table, igemm"
],
[
"Default constants",
"rung-igemm-async.html#igemm-async-times",
"table, igemm-async"
],
[
"Each kernel",
"rung-igemm-async.html#igemm-async-counters",
"table, igemm-async"
],
[
"Launches",
"rung-igemm-async.html#igemm-async-launches",
"table, igemm-async"
],
[
"Constants and defaults",
"rung-igemm-async.html#igemm-async-constants",
"table, igemm-async"
],
[
"Default constants",
"rung-igemm-stream-k.html#igemm-stream-k-times",
"table, igemm-stream-k"
],
[
"Each kernel",
"rung-igemm-stream-k.html#igemm-stream-k-counters",
"table, igemm-stream-k"
],
[
"Launches",
"rung-igemm-stream-k.html#igemm-stream-k-launches",
"table, igemm-stream-k"
],
[
"Constants and defaults",
"rung-igemm-stream-k.html#igemm-stream-k-constants",
"table, igemm-stream-k"
],
[
"Default constants",
"rung-mma-tf32.html#mma-tf32-times",
"table, mma-tf32"
],
[
"Each kernel",
"rung-mma-tf32.html#mma-tf32-counters",
"table, mma-tf32"
],
[
"Launches",
"rung-mma-tf32.html#mma-tf32-launches",
"table, mma-tf32"
],
[
"Constants and defaults",
"rung-mma-tf32.html#mma-tf32-constants",
"table, mma-tf32"
],
[
"Default constants",
"rung-mma-scaled.html#mma-scaled-times",
"table, mma-scaled"
],
[
"Each kernel",
"rung-mma-scaled.html#mma-scaled-counters",
"table, mma-scaled"
],
[
"Launches",
"rung-mma-scaled.html#mma-scaled-launches",
"table, mma-scaled"
],
[
"Constants and defaults",
"rung-mma-scaled.html#mma-scaled-constants",
"table, mma-scaled"
],
[
"Default constants",
"rung-mma-split.html#mma-split-times",
"table, mma-split"
],
[
"Each kernel",
"rung-mma-split.html#mma-split-counters",
"table, mma-split"
],
[
"Launches",
"rung-mma-split.html#mma-split-launches",
"table, mma-split"
],
[
"Constants and defaults",
"rung-mma-split.html#mma-split-constants",
"table, mma-split"
],
[
"Default constants",
"rung-mma-half.html#mma-half-times",
"table, mma-half"
],
[
"Each kernel",
"rung-mma-half.html#mma-half-counters",
"table, mma-half"
],
[
"Launches",
"rung-mma-half.html#mma-half-launches",
"table, mma-half"
],
[
"Constants and defaults",
"rung-mma-half.html#mma-half-constants",
"table, mma-half"
],
[
"Default constants",
"rung-wgmma-half.html#wgmma-half-times",
"table, wgmma-half"
],
[
"Other constants and transfers",
"rung-wgmma-half.html#wgmma-half-others",
"table, wgmma-half"
],
[
"Layers that it does not take",
"rung-wgmma-half.html#wgmma-half-refused",
"table, wgmma-half"
],
[
"Each kernel",
"rung-wgmma-half.html#wgmma-half-counters",
"table, wgmma-half"
],
[
"Launches",
"rung-wgmma-half.html#wgmma-half-launches",
"table, wgmma-half"
],
[
"Constants and defaults",
"rung-wgmma-half.html#wgmma-half-constants",
"table, wgmma-half"
],
[
"Default constants",
"rung-wgmma-half-blocked.html#wgmma-half-blocked-times",
"table, wgmma-half-blocked"
],
[
"Each kernel",
"rung-wgmma-half-blocked.html#wgmma-half-blocked-counters",
"table, wgmma-half-blocked"
],
[
"Launches",
"rung-wgmma-half-blocked.html#wgmma-half-blocked-launches",
"table, wgmma-half-blocked"
],
[
"Constants and defaults",
"rung-wgmma-half-blocked.html#wgmma-half-blocked-constants",
"table, wgmma-half-blocked"
],
[
"Default constants",
"rung-wgmma-scaled.html#wgmma-scaled-times",
"table, wgmma-scaled"
],
[
"Other constants and transfers",
"rung-wgmma-scaled.html#wgmma-scaled-others",
"table, wgmma-scaled"
],
[
"Each kernel",
"rung-wgmma-scaled.html#wgmma-scaled-counters",
"table, wgmma-scaled"
],
[
"Launches",
"rung-wgmma-scaled.html#wgmma-scaled-launches",
"table, wgmma-scaled"
],
[
"Constants and defaults",
"rung-wgmma-scaled.html#wgmma-scaled-constants",
"table, wgmma-scaled"
],
[
"Default constants",
"rung-wgmma-split.html#wgmma-split-times",
"table, wgmma-split"
],
[
"Other constants and transfers",
"rung-wgmma-split.html#wgmma-split-others",
"table, wgmma-split"
],
[
"Each kernel",
"rung-wgmma-split.html#wgmma-split-counters",
"table, wgmma-split"
],
[
"Launches",
"rung-wgmma-split.html#wgmma-split-launches",
"table, wgmma-split"
],
[
"Constants and defaults",
"rung-wgmma-split.html#wgmma-split-constants",
"table, wgmma-split"
],
[
"Default constants",
"rung-wgmma-window-half.html#wgmma-window-half-times",
"table, wgmma-window-half"
],
[
"Other constants and transfers",
"rung-wgmma-window-half.html#wgmma-window-half-others",
"table, wgmma-window-half"
],
[
"Layers that it does not take",
"rung-wgmma-window-half.html#wgmma-window-half-refused",
"table, wgmma-window-half"
],
[
"Each kernel",
"rung-wgmma-window-half.html#wgmma-window-half-counters",
"table, wgmma-window-half"
],
[
"Launches",
"rung-wgmma-window-half.html#wgmma-window-half-launches",
"table, wgmma-window-half"
],
[
"Constants and defaults",
"rung-wgmma-window-half.html#wgmma-window-half-constants",
"table, wgmma-window-half"
],
[
"Default constants",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-times",
"table, wgmma-window-scaled"
],
[
"Other constants and transfers",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-others",
"table, wgmma-window-scaled"
],
[
"Layers that it does not take",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-refused",
"table, wgmma-window-scaled"
],
[
"Each kernel",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-counters",
"table, wgmma-window-scaled"
],
[
"Launches",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-launches",
"table, wgmma-window-scaled"
],
[
"Constants and defaults",
"rung-wgmma-window-scaled.html#wgmma-window-scaled-constants",
"table, wgmma-window-scaled"
],
[
"Default constants",
"rung-wgmma-split-resident.html#wgmma-split-resident-times",
"table, wgmma-split-resident"
],
[
"Other constants and transfers",
"rung-wgmma-split-resident.html#wgmma-split-resident-others",
"table, wgmma-split-resident"
],
[
"Layers that it does not take",
"rung-wgmma-split-resident.html#wgmma-split-resident-refused",
"table, wgmma-split-resident"
],
[
"Each kernel",
"rung-wgmma-split-resident.html#wgmma-split-resident-counters",
"table, wgmma-split-resident"
],
[
"Launches",
"rung-wgmma-split-resident.html#wgmma-split-resident-launches",
"table, wgmma-split-resident"
],
[
"Constants and defaults",
"rung-wgmma-split-resident.html#wgmma-split-resident-constants",
"table, wgmma-split-resident"
],
[
"Default constants",
"rung-wgmma-winograd.html#wgmma-winograd-times",
"table, wgmma-winograd"
],
[
"Other constants and transfers",
"rung-wgmma-winograd.html#wgmma-winograd-others",
"table, wgmma-winograd"
],
[
"Layers that it does not take",
"rung-wgmma-winograd.html#wgmma-winograd-refused",
"table, wgmma-winograd"
],
[
"Each kernel",
"rung-wgmma-winograd.html#wgmma-winograd-counters",
"table, wgmma-winograd"
],
[
"Launches",
"rung-wgmma-winograd.html#wgmma-winograd-launches",
"table, wgmma-winograd"
],
[
"Constants and defaults",
"rung-wgmma-winograd.html#wgmma-winograd-constants",
"table, wgmma-winograd"
],
[
"Layers that it does not take",
"rung-wgmma-window-in-place.html#wgmma-window-in-place-refused",
"table, wgmma-window-in-place"
],
[
"Constants and defaults",
"rung-wgmma-window-in-place.html#wgmma-window-in-place-constants",
"table, wgmma-window-in-place"
],
[
"Default constants",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-times",
"table, wgmma-half-split-k"
],
[
"Other constants and transfers",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-others",
"table, wgmma-half-split-k"
],
[
"Layers that it does not take",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-refused",
"table, wgmma-half-split-k"
],
[
"Each kernel",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-counters",
"table, wgmma-half-split-k"
],
[
"Launches",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-launches",
"table, wgmma-half-split-k"
],
[
"Constants and defaults",
"rung-wgmma-half-split-k.html#wgmma-half-split-k-constants",
"table, wgmma-half-split-k"
],
[
"Default constants",
"rung-wgmma-half-whole.html#wgmma-half-whole-times",
"table, wgmma-half-whole"
],
[
"Layers that it does not take",
"rung-wgmma-half-whole.html#wgmma-half-whole-refused",
"table, wgmma-half-whole"
],
[
"Each kernel",
"rung-wgmma-half-whole.html#wgmma-half-whole-counters",
"table, wgmma-half-whole"
],
[
"Launches",
"rung-wgmma-half-whole.html#wgmma-half-whole-launches",
"table, wgmma-half-whole"
],
[
"Constants and defaults",
"rung-wgmma-half-whole.html#wgmma-half-whole-constants",
"table, wgmma-half-whole"
],
[
"Default constants",
"rung-wgmma-floats.html#wgmma-floats-times",
"table, wgmma-floats"
],
[
"Layers that it does not take",
"rung-wgmma-floats.html#wgmma-floats-refused",
"table, wgmma-floats"
],
[
"Each kernel",
"rung-wgmma-floats.html#wgmma-floats-counters",
"table, wgmma-floats"
],
[
"Launches",
"rung-wgmma-floats.html#wgmma-floats-launches",
"table, wgmma-floats"
],
[
"Constants and defaults",
"rung-wgmma-floats.html#wgmma-floats-constants",
"table, wgmma-floats"
],
[
"Default constants",
"rung-wgmma-floats-split.html#wgmma-floats-split-times",
"table, wgmma-floats-split"
],
[
"Layers that it does not take",
"rung-wgmma-floats-split.html#wgmma-floats-split-refused",
"table, wgmma-floats-split"
],
[
"Each kernel",
"rung-wgmma-floats-split.html#wgmma-floats-split-counters",
"table, wgmma-floats-split"
],
[
"Launches",
"rung-wgmma-floats-split.html#wgmma-floats-split-launches",
"table, wgmma-floats-split"
],
[
"Constants and defaults",
"rung-wgmma-floats-split.html#wgmma-floats-split-constants",
"table, wgmma-floats-split"
]
]);
