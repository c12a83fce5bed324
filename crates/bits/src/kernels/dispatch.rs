//! Compiles a kernel for each instruction set, and selects one at run time.

/// Runs an expression compiled for the widest instruction set. `$simd` is the set's token, of a
/// type that implements `fearless_simd::Simd`; functions and closures in the expression that are to
/// be compiled for the set, too, are `#[inline(always)]`.
macro_rules! dispatch {
    ($simd:ident => $run:expr) => {{
        let level = $crate::kernels::level::used();
        #[cfg(target_arch = "x86_64")]
        {
            // Not SSE4.2, which hardly any kernel would gain by.
            if let Some($simd) = level.as_avx512() {
                fearless_simd::Simd::vectorize($simd, #[inline(always)] || $run)
            } else if let Some($simd) = level.as_avx2() {
                fearless_simd::Simd::vectorize($simd, #[inline(always)] || $run)
            } else {
                let $simd = level.as_sse2().expect("x86-64 includes SSE2");
                $run
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        fearless_simd::dispatch!(level, $simd => $run)
    }};
}
pub(super) use dispatch;

/// Defines kernels: functions that are compiled for each instruction set.
///
/// - `fn name(arguments) { … }` is a plain loop, which the compiler turns into vector instructions.
/// - `fn name(simd, arguments) { … } plain { … }` uses vectors of the set's token `simd`, of type
///   `S`. The second block is the same kernel as a plain loop, with the same arguments. The first
///   calls it as `plain` for the elements after the last whole vector. Tests compare both.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn run<S: fearless_simd::Simd>(_: S $(, $arg: $type)*) $(-> $result)? $body
            $crate::kernels::dispatch::run_widest!(run($($arg: $type),*) $(-> $result)?)
        }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident(
        $simd:ident $(, $arg:ident: $type:ty)* $(,)?
    ) $(-> $result:ty)? $body:block plain $plain:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(dead_code, reason = "only tests call the plain loops of some kernels")]
            fn plain($($arg: $type),*) $(-> $result)? $plain
            #[inline(always)]
            fn run<S: fearless_simd::Simd>($simd: S $(, $arg: $type)*) $(-> $result)? $body
            #[cfg(any(test, feature = "testing"))]
            if $crate::kernels::level::is_plain() {
                return plain($($arg),*);
            }
            $crate::kernels::dispatch::run_widest!(run($($arg: $type),*) $(-> $result)?)
        }
    };
}
pub(super) use kernel;

/// Calls a function, which takes the token first, as [`dispatch!`] does. On x86-64 each set has a
/// function with the arguments as parameters, not a closure that captures them: then the compiler
/// would not know that slices do not overlap, and leave many loops scalar.
macro_rules! run_widest {
    ($run:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        {
            fearless_simd::kernel! {
                #[inline]
                fn avx512(simd: Avx512 $(, $arg: $type)*) $(-> $result)? { $run(simd $(, $arg)*) }
            }
            fearless_simd::kernel! {
                #[inline]
                fn avx2(simd: Avx2 $(, $arg: $type)*) $(-> $result)? { $run(simd $(, $arg)*) }
            }
            let level = $crate::kernels::level::used();
            if let Some(simd) = level.as_avx512() {
                avx512(simd $(, $arg)*)
            } else if let Some(simd) = level.as_avx2() {
                avx2(simd $(, $arg)*)
            } else {
                $run(level.as_sse2().expect("x86-64 includes SSE2") $(, $arg)*)
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $crate::kernels::dispatch::dispatch!(simd => $run(simd $(, $arg)*))
    }};
}
pub(super) use run_widest;

/// Calls a function for elements of a number of bytes, its last type parameter: `f<S>(…)` calls
/// `f::<S, 2>(…)` for two bytes, and `f<S, _>(…)` calls `f::<S, S::u16s, 2>(…)`.
///
/// # Panics
/// If the elements do not have 1, 2, 4 or 8 bytes.
macro_rules! by_width {
    (@ $width:expr => $run:ident $args:tt $([$($lanes:tt)+] $bytes:literal)+) => {
        match $width {
            $($bytes => $run::<$($lanes)+, $bytes> $args,)+
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    };
    ($width:expr => $run:ident<$S:ident>$args:tt) => {
        $crate::kernels::dispatch::by_width!(@ $width => $run $args [$S] 1 [$S] 2 [$S] 4 [$S] 8)
    };
    ($width:expr => $run:ident<$S:ident, _>$args:tt) => {
        $crate::kernels::dispatch::by_width!(
            @ $width => $run $args
            [$S, $S::u8s] 1 [$S, $S::u16s] 2 [$S, $S::u32s] 4 [$S, $S::u64s] 8
        )
    };
}
pub(super) use by_width;

/// The cases of a file's kernels, which tests compare with the plain loops: for each kernel its
/// name, and a function that runs it on slices of an `Input` and appends all its results to an
/// `Output`. Compiled for tests only.
macro_rules! cases {
    ($($case:expr),* $(,)?) => {
        #[cfg(any(test, feature = "testing"))]
        pub(super) mod cases {
            #[allow(unused_imports)]
            use $crate::kernels::*;
            use $crate::kernels::testing::cases::*;

            pub(in crate::kernels) const CASES: &[Case] = &[$($case),*];
        }
    };
}
pub(super) use cases;
