//! A program in a file is data: a process that registers no operator loads, prints and compares it.

use std::process::Command;

use unpadded::executor::Executor;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, ErrorKind, Program, Registry, ops};

use crate::models::{LOOP_IN_LOOP, TRAINED};

const FOLDER: &str = "UNPADDED_SAVED_PROGRAM";

fn programs() -> [Program; 2] {
    [TRAINED, LOOP_IN_LOOP].map(|model| {
        let net = Builder::new().seed(7);
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        let adam = Adam::new(1e-3).lazy().clip_global_norm(1.0);
        adam.minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        program
    })
}

#[test]
fn another_process_loads_prints_and_compares_it() {
    let folder = std::env::temp_dir().join(format!("unpadded-saved-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut expected = String::new();
    for (i, program) in programs().into_iter().enumerate() {
        program.save(folder.join(format!("{i}.program"))).unwrap();
        std::fs::write(folder.join(format!("{i}.txt")), program.to_string()).unwrap();
        std::fs::write(folder.join(format!("{i}.dot")), program.dot()).unwrap();
        expected += &program.to_string();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "saved_program::child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, &folder)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "the child ran no test:\n{out}");
    assert!(out.contains(&expected), "the child printed another program:\n{out}");
    for i in 0..2 {
        let bytes = |name: String| std::fs::read(folder.join(name)).unwrap();
        assert_eq!(bytes(format!("{i}.again")), bytes(format!("{i}.program")));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The other process. By itself it has nothing to do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = std::path::PathBuf::from(folder);
    for i in 0..2 {
        let path = folder.join(format!("{i}.program"));
        let program = Program::load(&path).unwrap();
        let text = |kind: &str| std::fs::read_to_string(folder.join(format!("{i}.{kind}"))).unwrap();
        assert_eq!((program.to_string(), program.dot()), (text("txt"), text("dot")));
        print!("{program}");
        assert_eq!(program, Program::load(&path).unwrap());
        let mut other = program.clone();
        other.seed += 1;
        assert_ne!(program, other);
        program.validate().unwrap();
        program.save(folder.join(format!("{i}.again"))).unwrap();
        let error = Executor::new(&program, &Registry::empty(), &[], 1).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Program);
        assert!(error.to_string().contains("operator kind"), "{error}");
    }
}
