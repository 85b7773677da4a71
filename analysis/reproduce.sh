#!/bin/sh
# Run the trials behind analysis/results, one run folder each; started again, it resumes where it stopped.
#
#   sh analysis/reproduce.sh DATA_ROOT OUT [SEEDS]
#
# DATA_ROOT holds MNIST and FashionMNIST in torchvision's layout; CIFAR-10 too, or set CIFAR10_PARQUET to a folder with
# train.parquet and test.parquet. SEEDS is a list such as "1 2 3". Then:
#
#   python analysis/paper_tables.py OUT --out analysis/results
#   python analysis/paper_figures.py OUT --out analysis/results
set -eu
root=$1 out=$2 seeds=${3:-"1 2 3"}

run() { # run NAME EVERY TRIAL SETTING…
    name=$1 every=$2 folder=$out/$1/$3
    shift 3
    set -- "$@" --set "telemetry.evaluate_every=$every"
    case $name in
    cifar10*) [ -z "${CIFAR10_PARQUET:-}" ] || set -- "$@" --set data.kind=parquet \
        --set "data.train=$CIFAR10_PARQUET/train.parquet" --set "data.test=$CIFAR10_PARQUET/test.parquet" ;;
    esac
    case " $* " in *" data.kind=parquet "*) ;; *) set -- "$@" --set "data.root=$root" ;; esac
    again=""
    [ ! -f "$folder/run.json" ] || again=--resume
    OMP_NUM_THREADS=1 fdsim run "scenarios/paper/$name.toml" --out "$folder" $again "$@"
}

for seed in $seeds; do
    for alpha in 0.5 0.7 0.3; do
        trial=alpha=$alpha,seed=$seed
        run fmnist_clustered 15 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha"
        run mnist_clustered 5 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha"
        run cifar10_clustered 25 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha"
        run mnist_released 5 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha"
        run fmnist_released 15 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha"
        run cifar10_released 25 "$trial" --set "seed=$seed" --set "participation.alpha=$alpha" # hours on two cores
    done
    run mnist_clustered 5 "k40,alpha=0.5,seed=$seed" --set "seed=$seed" --set participation.clients=40 \
        --set data.partition.samples_per_client=100
    run cifar10_general 25 "alpha=0.5,seed=$seed" --set "seed=$seed"
    run cifar10_clustered 25 "reduction,seed=$seed" --set "seed=$seed" --set 'strategies=[{kind="fdms",name="fdms, case 1",reduction={scale=1.0,p=0.01,beta=0.5,b_max=3,delta_f=0.01}},{kind="fdms",name="fdms, case 2",reduction={scale=0.5,p=0.01,beta=0.5,b_max=3,delta_f=0.01}}]'
done
