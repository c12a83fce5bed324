//! Examples of every command.

/// What a command does, and the command line.
pub(super) type Example = (&'static str, &'static str);

/// Three examples of each command.
pub(super) const EXAMPLES: [(&str, [Example; 3]); 18] = [
    (
        "compare",
        [
            ("The default compressors on generated digits", "compare"),
            (
                "Your images, two compressors, three seeds, one link",
                "compare --data DIR --model resnet20 --compressor none --compressor eden \
                 --seed 0 --seed 1 --seed 2 --link 100mbit/20ms",
            ),
            (
                "Whether anything changed since an earlier comparison",
                "compare --out new --baseline gradwire-report",
            ),
        ],
    ),
    (
        "train",
        [
            ("One run of 3lc, the default", "train --steps 200"),
            (
                "With a checkpoint every 100 steps",
                "train --compressor eden --save run.state --save-every 100",
            ),
            (
                "Go on after an interruption",
                "train --compressor eden --resume run.state --save run.state --save-every 100",
            ),
        ],
    ),
    (
        "reproduce",
        [
            ("The studies", "reproduce"),
            (
                "A row of a table on your copy of the data",
                "reproduce grace-fig6 --row resnet20 --data cifar10",
            ),
            (
                "Whether committed runs repeat on this machine",
                "reproduce --check results/check --steps 10",
            ),
        ],
    ),
    (
        "advise",
        [
            (
                "Eight ranks, two links, gradients of two steps",
                "advise step0.safetensors step1.safetensors --ranks 8 --step-ms 180 \
                 --link 100mbit --link 1gbps/2ms",
            ),
            (
                "One compressor, as JSON",
                "advise step0.safetensors --ranks 2 --step-ms 40 --link 1gbit --compressor eden --json",
            ),
            (
                "Sixteen machines of eight GPUs, without gradients",
                "advise --nodes 16 --ranks-per-node 8 --parameters 1.3e9 --step-ms 160 \
                 --between 10gbit/20us",
            ),
        ],
    ),
    (
        "bench",
        [
            ("All compressors at three sizes", "bench"),
            (
                "Two compressors on gradients of your own",
                "bench --input grads.safetensors --compressor eden --compressor int8",
            ),
            ("Four threads, as comma-separated values", "bench --threads 4 --quick --csv"),
        ],
    ),
    (
        "compress",
        [
            ("A file of tensors", "compress model.safetensors model.gw --compressor int8"),
            ("An array of NumPy", "compress gradient.npy gradient.gw --compressor topk:ratio=0.01"),
            (
                "From standard input to standard output",
                "compress - - --format npy --compressor eden",
            ),
        ],
    ),
    (
        "decompress",
        [
            ("Into a file of tensors", "decompress model.gw model.safetensors"),
            ("Into an array of NumPy", "decompress gradient.gw gradient.npy"),
            ("From standard input to standard output", "decompress - - --format npy"),
        ],
    ),
    (
        "inspect",
        [
            ("The frames of a file", "inspect model.gw"),
            ("A delta, as JSON", "inspect step.gwd --json"),
            ("A stream from a pipe", "inspect -"),
        ],
    ),
    (
        "delta",
        [
            ("Between two files", "delta old.safetensors new.safetensors -o step.gwd"),
            ("Between two folders of files", "delta checkpoint-100 checkpoint-200 -o step.gwd"),
            ("To standard output", "delta old.safetensors new.safetensors -o -"),
        ],
    ),
    (
        "patch",
        [
            ("Into a new file", "patch old.safetensors step.gwd -o new.safetensors"),
            ("Several deltas, the oldest first", "patch checkpoint 1.gwd 2.gwd -o newer"),
            ("In place, from a pipe", "patch model.safetensors - --in-place"),
        ],
    ),
    (
        "fold",
        [
            ("Two deltas", "fold old.safetensors 1.gwd 2.gwd -o both.gwd"),
            ("To standard output", "fold old.safetensors 1.gwd 2.gwd -o -"),
            (
                "For readers that lack the old weights",
                "fold old.safetensors 1.gwd 2.gwd -o both.gwd --portable",
            ),
        ],
    ),
    (
        "pack",
        [
            ("A file", "pack model.safetensors -o model.gwd"),
            ("A folder of files", "pack checkpoint-100 -o checkpoint-100.gwd"),
            ("To standard output, by two threads", "pack model.safetensors -o - --threads 2"),
        ],
    ),
    (
        "unpack",
        [
            ("Into a file", "unpack model.gwd -o model.safetensors"),
            ("Into a folder, if the snapshot holds one", "unpack checkpoint-100.gwd -o checkpoint"),
            ("From standard input", "unpack - -o model.safetensors"),
        ],
    ),
    (
        "list",
        [
            ("All compressors", "list"),
            ("Formula, parameters and paper of two of them", "list eden 3lc"),
            ("As Markdown", "list --markdown"),
        ],
    ),
    (
        "data",
        [
            ("The known data sets", "data"),
            ("The same, as Markdown", "data list --markdown"),
            ("Check your copy of MNIST", "data check data/mnist"),
        ],
    ),
    (
        "env",
        [
            ("To paste into a bug report", "env"),
            ("As Markdown", "env --markdown"),
            ("As JSON", "env --json"),
        ],
    ),
    (
        "completions",
        [
            ("For bash", "completions bash > ~/.local/share/bash-completion/completions/gradwire"),
            ("For zsh, in a folder of $fpath", "completions zsh > ~/.zfunc/_gradwire"),
            ("For fish", "completions fish > ~/.config/fish/completions/gradwire.fish"),
        ],
    ),
    (
        "man",
        [
            ("Show the page", "man | man -l -"),
            ("Show the page of a command", "man compare | man -l -"),
            ("Write all pages", "man --out ~/.local/share/man/man1"),
        ],
    ),
];
